"""What the history answers: series of metrics, runs, alarms, and what people may mark an alarm as."""

import hashlib
from urllib.parse import parse_qsl, urlencode

import msgspec

from seatrial import SeatrialError
from seatrial.job import Moment, Settings, Verdict, worst_cell

MARKS = ("false-alarm", "regression", "fixed")
ACCEPTED = "accepted"  # the mark of a recenter: from this run on there is a new level, and it is in order

# Verdicts that are the same trouble, when one asks since when.
_FAILING = tuple(
    verdict.value for verdict in Verdict if not verdict.good and verdict not in (Verdict.SLOWER, Verdict.FASTER)
)

IMPORTED = "imported"  # the suite and the target of runs that another tool made

_GOOD = frozenset({"passed", "xfail", "slower", "faster"})
_ALARMS = frozenset({"slower", "faster"})


class Point(msgspec.Struct, frozen=True, gc=False):
    """One metric of one cell of one run."""

    run: str
    at_s: float  # wall time at which the attempt started that the metric is from
    value: float
    verdict: str  # of the cell
    mark: str = ""  # what a person said of it: one of MARKS; ACCEPTED at the first run of an accepted level
    mark_reason: str = ""
    commit: str = ""
    host: str = ""
    id: str = ""  # of the cell
    source: str = ""  # where the metric was read
    accepted: bool = False  # it is of a level that was accepted after it ran, so its alarm needs no judgement any more

    @property
    def good(self) -> bool:
        """The cell came to its end as it should; how fast is another question."""
        return self.verdict in _GOOD

    @property
    def alarm(self) -> bool:
        return self.verdict in _ALARMS


class Series(msgspec.Struct, frozen=True):
    """All metrics of one name of one benchmark under the same conditions, oldest first."""

    benchmark: str
    trial: str
    fingerprint: str
    metric: str
    unit: str
    better: str  # "lower", "higher", or "" for a metric that is not judged
    points: list[Point] = []
    conditions: dict[str, str] = {}  # of its fingerprint; empty where an older Seatrial did not keep them
    under_test: dict[str, str] = {}  # in its newest run

    @property
    def settings(self) -> Settings:
        """`former` is its fingerprint, for a series that an older Seatrial began."""
        return Settings(self.conditions, self.under_test, self.fingerprint)

    @property
    def values(self) -> list[float]:
        return [point.value for point in self.points]


class TimeWindow(msgspec.Struct, frozen=True):
    """Wall times of what is wanted; None: open."""

    since_s: float | None = None
    until_s: float | None = None

    def has(self, at_s: float) -> bool:
        return (self.since_s is None or at_s >= self.since_s) and (self.until_s is None or at_s <= self.until_s)


ALWAYS = TimeWindow()
ENDLESS = 1 << 40  # more rows than there are


class Mark(msgspec.Struct, frozen=True):
    """A person's mark of a run, of one benchmark or one metric of it. An empty one takes back what was said before."""

    run: str
    benchmark: str  # "" means all of the run
    label: str
    reason: str
    by: str
    at_s: float
    metric: str = ""  # "" means all of the benchmark


class Alarm(msgspec.Struct, frozen=True):
    """A benchmark that a run called slower or faster, and what a person said of that.

    `mark` is one of MARKS, or ACCEPTED where it was not judged and its level was accepted later."""

    run: str
    at_s: float
    benchmark: str
    fingerprint: str
    verdict: str
    why: str
    commit: str = ""
    mark: str = ""
    mark_reason: str = ""
    mark_by: str = ""


class CellRow(msgspec.Struct, frozen=True, gc=False):
    """What a cell came to in one run."""

    run: str
    at_s: float  # wall time at which the run started
    id: str
    verdict: str
    flaky: bool
    why: str
    commit: str
    headline: str = ""  # the one line that says why it did not pass; empty where an older Seatrial did not keep it
    cause: str = ""  # id of its first cause

    @property
    def good(self) -> bool:
        return Verdict(self.verdict).good


class PastResult(msgspec.Struct, frozen=True, gc=False):
    """What a cell came to in an earlier run."""

    run: str
    at_s: float  # wall time at which the cell started
    verdict: str
    flaky: bool = False
    causes: tuple[str, ...] = ()  # their ids; empty where it passed, or an older Seatrial did not keep them
    commit: str = ""

    @property
    def moment(self) -> Moment:
        return Moment(self.run, self.at_s, self.commit)

    def has_cause(self, cause: str) -> bool:
        """It failed with that cause, as far as is known of both."""
        return not cause or not self.causes or cause in self.causes

    def with_repeat(self, other: "PastResult") -> "PastResult":
        """Of two repeats in one run: the worse, flaky if one is, with the causes of both."""
        worse = worst_cell([Verdict(self.verdict), Verdict(other.verdict)])
        chosen = self if self.verdict == worse else other
        causes = tuple(dict.fromkeys(self.causes + other.causes))
        return msgspec.structs.replace(chosen, flaky=bool(self.flaky or other.flaky), causes=causes)


class RunPast(msgspec.Struct, frozen=True):
    """What was known of the cells and causes of a run before it."""

    cells: dict[str, list[PastResult]] = {}  # by id without `repeat`: its last results, oldest first
    # Of a cell that was not good the last time: since when without a break. By its id without `repeat`, and the cause
    # that it has now, for which it was so; an empty one for whatever cause.
    streaks: dict[tuple[str, str], Moment] = {}
    causes: dict[str, tuple[Moment, Moment]] = {}  # by id: the first time that it was seen, and the last


def outcome_class(verdict: str) -> tuple[str, ...] | None:
    """The verdicts that say the same of a cell for one who asks since when; None: it was good."""
    if verdict in _ALARMS:
        return (verdict,)
    return _FAILING if verdict in _FAILING else None


class TrialRow(msgspec.Struct, frozen=True):
    """What the history has of one trial."""

    trial: str
    runs: int
    benchmarks: int
    series: int
    first_s: float
    last_s: float


HIDDEN = "***"


class HistoryError(SeatrialError):
    """The history at `place` cannot be used; `reason` says why, `advice` what to do. No result is lost by it."""

    def __init__(self, place: str, reason: str, advice: str) -> None:
        super().__init__(f"history {place}: {reason.strip().rstrip('.')}. {advice}")
        self.place = place
        self.reason = reason
        self.advice = advice


def place_text(place: str) -> str:
    """The place as it may be shown: a URL without its password."""
    if "://" not in place:
        return place
    scheme, _, rest = place.partition("://")
    # Up to the last @: a password with a / or an @ in it that was not written as %2F or %40 is hidden, too.
    account, at, server = rest.rpartition("@")
    user, colon, _ = account.partition(":")
    server, question, query = server.partition("?")
    try:
        pairs = [(name, HIDDEN if "pass" in name.lower() else value) for name, value in parse_qsl(query)]
    except ValueError:
        pairs = []
    shown = urlencode(pairs, safe="*/")
    return f"{scheme}://{user}{colon}{HIDDEN if colon else ''}{at}{server}{question}{shown}"


MOST_KEY_BYTES = 600  # an index of PostgreSQL takes rows of up to 2,700
_MOST_TEXT = 100_000


def text(value: str, most: int = _MOST_TEXT) -> str:
    """What every database can keep: no NUL, no half of a surrogate pair, not without end."""
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode()
    value = value.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in value else value
    return value if len(value) <= most else f"{value[:most]}… ({len(value) - most:,} characters left out)"


def key(value: str) -> str:
    """A text that an index is over: a very long one is cut, with a digest of the whole so that two never meet."""
    value = text(value, len(value))
    whole = value.encode()
    if len(whole) <= MOST_KEY_BYTES:
        return value
    digest = hashlib.blake2b(whole, digest_size=8).hexdigest()
    return f"{whole[: MOST_KEY_BYTES - 32].decode(errors='ignore')}…{digest}"


def series_id(benchmark: str, fingerprint: str, metric: str, unit: str) -> int:
    """The number of a series, the same in every database: nobody has to ask for it before adding to it."""
    return _number(benchmark, fingerprint, metric, unit)


def cell_number(suite: str, name: str) -> int:
    """The number of a cell of a suite, whatever its content is; `name` is its id without the axis `repeat`."""
    return _number(key(suite), key(name))


def _number(*parts: str) -> int:
    lengths = ",".join(str(len(part)) for part in parts)
    digest = hashlib.blake2b("\0".join((lengths, *parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
