"""What a run came to, in the form of `results.json`. Other programs read it: it only grows."""

from enum import StrEnum

import msgspec

from seatrial.job.charts import AnyChart
from seatrial.job.lifecycle import Exit, Outcome, Place, StageTime
from seatrial.job.reading import JsonObject
from seatrial.job.verdict import EXIT_CODES, ExitCode, Finding, Verdict, worst_cell

VERSION = 1


class PartResult(msgspec.Struct, frozen=True):
    """Where, when and how one part of an attempt of several ran."""

    place: Place
    stages: list[StageTime]
    exit: Exit


class AttemptResult(msgspec.Struct, frozen=True):
    number: int
    place: Place
    stages: list[StageTime]
    exit: Exit
    verdict: Verdict
    why: str = ""
    headline: str = ""  # the one line that says why it is not good: mostly what a program printed as it broke
    seconds: float | None = None  # started to finished, by one clock
    parts: dict[str, PartResult] = {}  # where there is more than one; place, stages and exit above are of the first
    metrics: JsonObject = {}  # of an attempt that is not the one that the cell's metrics are from
    unjudged: bool = False  # all that is wrong is that metrics with bounds could not be judged by them

    @property
    def cancelled(self) -> bool:
        exits = [part.exit for part in self.parts.values()] or [self.exit]
        return any(one.outcome is Outcome.CANCELLED for one in exits)


class Change(StrEnum):
    """What became of a cell or a cause since the last time."""

    FIRST = "first"  # it never ran before
    NEW = "new"  # of a cell: good the last time, and fails now; of a cause: never seen before
    SLOWER = "slower"  # was not, the last time
    FASTER = "faster"
    KNOWN = "known"  # was so the last time
    OTHER_CAUSE = "other-cause"  # of a cell: was as bad the last time, with another cause
    BACK = "back"  # a cause that was seen before, but not the last time
    FIXED = "fixed"
    SAME = "same"  # good then and now


class Moment(msgspec.Struct, frozen=True):
    """A run, when a cell started in it, and the commit that it tested, where that is known."""

    run: str
    at_s: float
    commit: str = ""


class CellNews(msgspec.Struct, frozen=True):
    change: Change
    last: Moment | None = None  # what it is compared with: the last time that it ran before; None: it never did
    before: str = ""  # its verdict then
    # Of what is fixed: when it began to fail, or to be slower, without a break. Of what is known: with this cause.
    since: Moment | None = None
    runs: int = 0  # this one and those of `past`
    flaky: int = 0  # of them, those in which it passed on a retry
    bad: int = 0  # of them, those in which it did not pass
    past: list[tuple[int, str]] = []  # its last runs, oldest first: place in RunResults.past_runs, verdict or `flaky`


class CauseNews(msgspec.Struct, frozen=True):
    change: Change  # new, known or back
    since: Moment | None = None  # the first time ever that a cell of the suite failed so
    last: Moment | None = None  # the last time before this run


class CellResult(msgspec.Struct, frozen=True):
    """One cell of a run: its verdict, the findings and metrics of the attempt that decided, and every attempt."""

    id: str
    hash: str
    axes: dict[str, str]
    verdict: Verdict
    trial: str = ""
    kind: str = ""
    flaky: bool = False
    why: str = ""
    attempts: list[AttemptResult] = []
    findings: list[Finding] = []
    metrics: JsonObject = {}
    benchmark: str = ""  # the name of its series of metrics, the same for all its repeats
    fingerprint: str = ""  # of the conditions; metrics of two never mix
    conditions: dict[str, str] = {}  # what must be equal for metrics to be compared
    under_test: dict[str, str] = {}  # what may differ, because it is what is judged
    charts: list[AnyChart] = msgspec.field(default_factory=list, name="exhibits")
    news: CellNews | None = None  # None: it did not run, or there was nothing to compare it with

    @property
    def done(self) -> bool:
        """It was run to its end, and needs no attention. What was cancelled or never started is not done."""
        return self.verdict.good and bool(self.attempts) and not self.attempts[-1].cancelled


class Excluded(msgspec.Struct, frozen=True):
    """A combination that is not run, and the reason."""

    trial: str
    axes: dict[str, str]
    why: str
    cause: str = ""  # disabled, needs, exclude, tag, select or pairwise


class SkippedItem(msgspec.Struct, frozen=True):
    name: str
    why: str


class Contents(msgspec.Struct, frozen=True):
    """What a cell consists of, where that is known before it is run."""

    item: str  # the word for one of them: case
    count: int  # that are run
    ways: int  # in how many ways all of them together are
    skipped: tuple[SkippedItem, ...] = ()


class Cause(msgspec.Struct, frozen=True):
    """Cells of a run with a finding that says the same, and the smallest place that explains them."""

    id: str  # six hex digits of what is said, without numbers, addresses and paths: the same in every run
    verdict: Verdict
    text: str
    cells: list[str]  # their hashes
    place: dict[str, str] = {}  # at most two values of axes; empty: nothing explains it
    there: int = 0  # of these cells, in that place
    of: int = 0  # all cells of the run in that place
    shared: dict[str, str] = {}  # as `place`: values that just these cells have, where that may be chance
    news: CauseNews | None = None


class RunResults(msgspec.Struct, frozen=True):
    """A finished run, as results.json keeps it. Every cell of the plan is in it, whatever became of it."""

    version: int
    run: str
    suite: str
    verdict: Verdict
    cells: list[CellResult]
    excluded: list[Excluded] = msgspec.field(default_factory=list, name="holes")
    causes: list[Cause] = []  # largest first
    suite_path: str = ""
    started_s: float = 0.0  # wall time
    seconds: float = 0.0
    counts: dict[str, int] = {}  # cells by verdict, and "flaky"
    interrupted: bool = False
    seatrial: str = ""
    commit: str = ""  # of what was tested
    target: str = ""  # what everything was moved to, as it was asked for
    axes: dict[str, dict[str, list[str]]] = {}  # values of each trial's axes, in the order of the suite
    against: str = ""  # what news are relative to: "history", or the id of a run; empty: there are none
    changes: dict[str, int] = {}  # cells by what became of them
    past_runs: list[Moment] = []  # the earlier runs that cells of this one were in, oldest first

    @property
    def exit_code(self) -> ExitCode:
        """What the tests said comes first; then time, then infrastructure."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if any(not cell.attempts for cell in self.cells):  # never started: a limit of the run was reached
            return ExitCode.FAILED
        return EXIT_CODES[worst_cell(cell.verdict for cell in self.cells)]
