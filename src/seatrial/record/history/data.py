"""Data types of the history: metric series, runs, alerts and marks."""

import hashlib
from collections.abc import Iterable
from math import isfinite
from urllib.parse import parse_qsl, urlencode

import msgspec

from seatrial import SeatrialError
from seatrial.job import Moment, Settings, Verdict, worst_cell

MARKS = ("false-alarm", "regression", "fixed")
ACCEPTED = "accepted"  # mark of `baseline recenter`: a new level starts at this run and is accepted

# Verdicts that count as the same failure in a streak.
_FAILING = tuple(
    verdict.value for verdict in Verdict if not verdict.good and verdict not in (Verdict.SLOWER, Verdict.FASTER)
)

IMPORTED = "imported"  # suite and target of runs imported from other tools

_GOOD = frozenset({"passed", "xfail", "slower", "faster"})
_ALARMS = frozenset({"slower", "faster"})


RECENT = 20  # runs in which a shift is looked for


class Point(msgspec.Struct, frozen=True, gc=False):
    """One metric of one cell of one run."""

    run: str
    at_s: float  # wall time of the start of the attempt
    value: float
    verdict: str  # of the cell
    mark: str = ""  # one of MARKS, or ACCEPTED at the first run of an accepted level
    mark_reason: str = ""
    commit: str = ""
    host: str = ""
    id: str = ""  # of the cell
    source: str = ""  # where the metric was read from
    accepted: bool = False  # its level was accepted after it ran, so its alert needs no review

    @property
    def good(self) -> bool:
        """The cell succeeded, regardless of its speed."""
        return self.verdict in _GOOD

    @property
    def alarm(self) -> bool:
        return self.verdict in _ALARMS


class Series(msgspec.Struct, frozen=True):
    """All values of one metric of one benchmark under the same conditions, oldest first."""

    benchmark: str
    trial: str
    fingerprint: str
    metric: str
    unit: str
    better: str  # "lower", "higher", or "" for a metric that is not checked
    points: list[Point] = []
    conditions: dict[str, str] = {}  # of its fingerprint; empty if recorded by an older Seatrial
    under_test: dict[str, str] = {}  # in its newest run

    @property
    def settings(self) -> Settings:
        """`former` is its fingerprint, for series that an older Seatrial started."""
        return Settings(self.conditions, self.under_test, self.fingerprint)

    @property
    def values(self) -> list[float]:
        return [point.value for point in self.points]


def recent_values(points: Iterable[Point], since_s: float | None) -> list[tuple[str, float]]:
    """The last runs with their median values, oldest first: good runs since `since_s`, after one that is marked as a
    false alarm and from one that is marked as fixed."""
    from statistics import median

    found: dict[str, list[float]] = {}
    for point in points:
        if point.mark in ("false-alarm", "fixed") and point.run not in found:
            found.clear()
        if point.good and point.mark != "false-alarm" and point.at_s >= (since_s or 0.0) and isfinite(point.value):
            found.setdefault(point.run, []).append(point.value)
    return [(run, median(values)) for run, values in list(found.items())[-RECENT:]]


class TimeWindow(msgspec.Struct, frozen=True):
    """A range of wall times; None means open."""

    since_s: float | None = None
    until_s: float | None = None

    def has(self, at_s: float) -> bool:
        return (self.since_s is None or at_s >= self.since_s) and (self.until_s is None or at_s <= self.until_s)


ALWAYS = TimeWindow()
ENDLESS = 1 << 40  # no row limit


class Mark(msgspec.Struct, frozen=True):
    """A user's mark of a run, or of one benchmark or metric in it. An empty one removes earlier marks."""

    run: str
    benchmark: str  # "" means the whole run
    label: str
    reason: str
    by: str
    at_s: float
    metric: str = ""  # "" means the whole benchmark


class Alarm(msgspec.Struct, frozen=True):
    """An alert: a benchmark that was slower or faster in a run, and its review.

    `mark` is one of MARKS, or ACCEPTED if it was not reviewed and its level was accepted later."""

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
    """The result of a cell in one run."""

    run: str
    at_s: float  # wall time of the start of the run
    id: str
    verdict: str
    flaky: bool
    why: str
    commit: str
    headline: str = ""  # the line that best explains a failure; empty if recorded by an older Seatrial
    cause: str = ""  # id of its first cause
    hash: str = ""
    host: str = ""
    trial: str = ""
    benchmark: str = ""

    @property
    def good(self) -> bool:
        return Verdict(self.verdict).good

    @property
    def reason(self) -> str:
        return self.headline or self.why


class PastResult(msgspec.Struct, frozen=True, gc=False):
    """The result of a cell in an earlier run."""

    run: str
    at_s: float  # wall time of the start of the cell
    verdict: str
    flaky: bool = False
    causes: tuple[str, ...] = ()  # ids; empty if it passed, or if recorded by an older Seatrial
    commit: str = ""

    @property
    def moment(self) -> Moment:
        return Moment(self.run, self.at_s, self.commit)

    def has_cause(self, cause: str) -> bool:
        """Whether it failed with that cause; True if either is unknown."""
        return not cause or not self.causes or cause in self.causes

    def with_repeat(self, other: "PastResult") -> "PastResult":
        """Merges two repeats of a run: the worse one, flaky if either is, with the causes of both."""
        worse = worst_cell([Verdict(self.verdict), Verdict(other.verdict)])
        chosen = self if self.verdict == worse else other
        causes = tuple(dict.fromkeys(self.causes + other.causes))
        return msgspec.structs.replace(chosen, flaky=bool(self.flaky or other.flaky), causes=causes)


class RunPast(msgspec.Struct, frozen=True):
    """The past of a run's cells and causes."""

    cells: dict[str, list[PastResult]] = {}  # by id without `repeat`: last results, oldest first
    # The start of a cell's current failure streak, by its id without `repeat` and its current cause; an empty cause
    # means any.
    streaks: dict[tuple[str, str], Moment] = {}
    causes: dict[str, tuple[Moment, Moment]] = {}  # by id: first and last time seen


def outcome_class(verdict: str) -> tuple[str, ...] | None:
    """The verdicts that continue the same failure streak; None for a good verdict."""
    if verdict in _ALARMS:
        return (verdict,)
    return _FAILING if verdict in _FAILING else None


class TrialRow(msgspec.Struct, frozen=True):
    """Summary of one trial in the history."""

    trial: str
    runs: int
    benchmarks: int
    series: int
    first_s: float
    last_s: float


HIDDEN = "***"


class HistoryError(SeatrialError):
    """The history at `location` cannot be used: `reason`, and `advice` what to do. No results are lost."""

    def __init__(self, location: str, reason: str, advice: str) -> None:
        super().__init__(f"history {location}: {reason.strip().rstrip('.')}. {advice}")
        self.location = location


def masked_location(location: str) -> str:
    """The path or URL for messages, with the password hidden."""
    if "://" not in location:
        return location
    scheme, _, rest = location.partition("://")
    # Up to the last @: this also hides passwords with an unescaped / or @.
    account, at, server = rest.rpartition("@")
    user, colon, _ = account.partition(":")
    server, question, query = server.partition("?")
    try:
        pairs = [(name, HIDDEN if "pass" in name.lower() else value) for name, value in parse_qsl(query)]
    except ValueError:
        pairs = []
    shown = urlencode(pairs, safe="*/")
    return f"{scheme}://{user}{colon}{HIDDEN if colon else ''}{at}{server}{question}{shown}"


MOST_KEY_BYTES = 600  # index rows of PostgreSQL are limited to 2,700
_MOST_TEXT = 100_000


def text(value: str, most: int = _MOST_TEXT) -> str:
    """Text that every database can store: no NUL, no lone surrogates, limited length."""
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode()
    value = value.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in value else value
    return value if len(value) <= most else f"{value[:most]}… ({len(value) - most:,} characters left out)"


def key(value: str) -> str:
    """Text for an indexed column: long text is cut and gets a digest, so that keys stay unique."""
    value = text(value, len(value))
    whole = value.encode()
    if len(whole) <= MOST_KEY_BYTES:
        return value
    digest = hashlib.blake2b(whole, digest_size=8).hexdigest()
    return f"{whole[: MOST_KEY_BYTES - 32].decode(errors='ignore')}…{digest}"


def series_id(benchmark: str, fingerprint: str, metric: str, unit: str) -> int:
    """The number of a series. A hash, so that writers need not query it."""
    return _number(benchmark, fingerprint, metric, unit)


def cell_number(suite: str, name: str) -> int:
    """The number of a cell in a suite, independent of its content; `name` is its id without the axis `repeat`."""
    return _number(key(suite), key(name))


def _number(*parts: str) -> int:
    lengths = ",".join(str(len(part)) for part in parts)
    digest = hashlib.blake2b("\0".join((lengths, *parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
