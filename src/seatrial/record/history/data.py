"""What the history answers: series of figures, runs, alarms, and what people may mark an alarm as."""

import msgspec

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
    """One figure of one cell of one run."""

    run: str
    at_s: float  # wall time at which the attempt started that the figure is from
    value: float
    verdict: str  # of the cell
    mark: str = ""  # what a person said of it: one of MARKS; ACCEPTED at the first run of an accepted level
    mark_reason: str = ""
    commit: str = ""
    host: str = ""
    id: str = ""  # of the cell
    source: str = ""  # where the figure was read
    accepted: bool = False  # it is of a level that was accepted after it ran, so its alarm needs no judgement any more

    @property
    def good(self) -> bool:
        """The cell came to its end as it should; how fast is another question."""
        return self.verdict in _GOOD

    @property
    def alarm(self) -> bool:
        return self.verdict in _ALARMS


class Series(msgspec.Struct, frozen=True):
    """All figures of one name of one benchmark under the same conditions, oldest first."""

    benchmark: str
    trial: str
    fingerprint: str
    metric: str
    unit: str
    better: str  # "lower", "higher", or "" for a figure that is not judged
    points: list[Point]
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


class Mark(msgspec.Struct, frozen=True):
    """A person's mark of a run, of one benchmark or one figure of it. An empty one takes back what was said before."""

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


class RunRow(msgspec.Struct, frozen=True):
    run: str
    suite: str
    verdict: str
    at_s: float
    seconds: float
    commit: str


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
    cause: str = ""  # id of its cause

    @property
    def good(self) -> bool:
        return Verdict(self.verdict).good


class PastResult(msgspec.Struct, frozen=True, gc=False):
    """What a cell came to in an earlier run."""

    run: str
    at_s: float  # wall time at which the cell started
    verdict: str
    flaky: bool = False
    cause: str = ""  # id of its cause; empty where it passed, or an older Seatrial did not keep it
    commit: str = ""

    @property
    def moment(self) -> Moment:
        return Moment(self.run, self.at_s, self.commit)

    def with_repeat(self, other: "PastResult") -> "PastResult":
        """Of two repeats in one run: the worse, flaky if one is."""
        worse = worst_cell([Verdict(self.verdict), Verdict(other.verdict)])
        chosen = self if self.verdict == worse else other
        return msgspec.structs.replace(chosen, flaky=bool(self.flaky or other.flaky))


class RunPast(msgspec.Struct, frozen=True):
    """What was known of the cells and causes of a run before it."""

    cells: dict[str, list[PastResult]] = {}  # by id without `repeat`: its last results, oldest first
    streaks: dict[str, Moment] = {}  # of a cell that was not good the last time: since when without a break
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
