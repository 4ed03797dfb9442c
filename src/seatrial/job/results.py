"""The results of a run, in the format of `results.json`. Other programs read it: fields are only added."""

from enum import StrEnum
from typing import Any

import msgspec

from seatrial.job.lifecycle import Exit, Outcome, Place, StageTime
from seatrial.job.reading import JsonObject
from seatrial.job.verdict import EXIT_CODES, ExitCode, Finding, Verdict, worst_cell

# Charts, tables and token diffs that a kind adds to its findings: typed data, which reports render. In `results.json`
# they are the `exhibits` of a cell, each with its `kind`.


class Chart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """Rows and columns with any values; plots skip values that are not numbers."""

    title: str
    columns: list[str] = []
    rows: list[list[Any]] = []
    units: dict[str, str] = {}  # by column
    bounds: dict[str, float] = {}  # by column
    first: bool = False  # belongs on the first screen of a report, beside the tiles


class Table(Chart, frozen=True, tag="table"):
    """Shown as a table."""


class Series(Chart, frozen=True, tag="series"):
    """Curves over the first column, which is sorted."""


class Distribution(Chart, frozen=True, tag="distribution"):
    """One row per metric, with columns of quantiles."""


class Timeline(Chart, frozen=True, tag="timeline"):
    """Rows of name, start and end."""


class Tile(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="tile"):
    """A number of the first screen: one of few that answer the question of the trial."""

    title: str
    value: float | None = None
    unit: str = ""
    group: str = ""  # tiles of one group are next to each other
    bound: str = ""  # such as `<= 500 ms`
    limit: float | None = None  # the value of the bound
    verdict: Verdict | None = None  # of the bound
    note: str = ""


class History(msgspec.Struct, frozen=True, tag_field="kind", tag="history"):
    """A metric of the cell over its runs, for the first screen."""

    title: str
    metric: str


class DiffToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token of an answer; `top` are the most likely tokens at its position."""

    text: str = ""
    logprob: float | None = None
    rank: int | None = None
    top: list["DiffToken"] = []


class TokenDifference(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first difference between two answers, and its size; `position` counts tokens from 0."""

    agreement: str = ""
    message: str = ""
    position: int | None = None
    size: float | None = None
    tolerance: float | None = None
    expected: DiffToken | None = None
    got: DiffToken | None = None


class TokenDiff(msgspec.Struct, frozen=True, tag_field="kind", tag="token-diff"):
    """Two answers side by side where they differ."""

    title: str
    data: TokenDifference = TokenDifference()


class TextBody(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str = ""


class Text(msgspec.Struct, frozen=True, tag_field="kind", tag="text"):
    title: str
    data: TextBody = TextBody()


AnyChart = Table | Series | Distribution | Timeline | Tile | History | TokenDiff | Text


VERSION = 1


class PartResult(msgspec.Struct, frozen=True):
    """Where, when and how one of several parts of an attempt ran."""

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
    headline: str = ""  # the reason in one line if it is not good: usually the error that a program printed
    seconds: float | None = None  # started to finished, by one clock
    parts: dict[str, PartResult] = {}  # if there are several; place, stages and exit above are of the first
    metrics: JsonObject = {}  # if the cell's metrics are from another attempt
    unjudged: bool = False  # the only problem is that metrics with bounds could not be checked

    @property
    def cancelled(self) -> bool:
        exits = [part.exit for part in self.parts.values()] or [self.exit]
        return any(one.outcome is Outcome.CANCELLED for one in exits)


class Change(StrEnum):
    """How a cell or a cause changed since its previous run."""

    FIRST = "first"  # it never ran before
    NEW = "new"  # of a cell: was good, and fails now; of a cause: never seen before
    SLOWER = "slower"  # was not slower in the previous run
    FASTER = "faster"
    KNOWN = "known"  # the same in the previous run
    OTHER_CAUSE = "other-cause"  # of a cell: failed in the previous run too, with another cause
    BACK = "back"  # a cause that was seen before, but not in the previous run
    FIXED = "fixed"
    SAME = "same"  # good then and now


class Moment(msgspec.Struct, frozen=True):
    """A run, the time when a cell started in it, and the commit under test, if known."""

    run: str
    at_s: float
    commit: str = ""


class CellNews(msgspec.Struct, frozen=True):
    change: Change
    last: Moment | None = None  # the previous run, which it is compared with; None if it never ran
    before: str = ""  # its verdict in that run
    # If fixed: the first of the uninterrupted failing or slower runs. If known: the same, with this cause.
    since: Moment | None = None
    runs: int = 0  # number of runs: this one and those of `past`
    flaky: int = 0  # runs in which it passed on a retry
    bad: int = 0  # runs in which it did not pass
    past: list[tuple[int, str]] = []  # previous runs, oldest first: index in RunResults.past_runs, verdict or `flaky`


class CauseNews(msgspec.Struct, frozen=True):
    change: Change  # new, known or back
    since: Moment | None = None  # the first run of the suite with this cause
    last: Moment | None = None  # the last run with it before this one


class CellResult(msgspec.Struct, frozen=True):
    """One cell of a run: its verdict, the findings and metrics of the deciding attempt, and every attempt."""

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
    benchmark: str = ""  # name of its metric series, the same for all its repeats
    fingerprint: str = ""  # of the conditions; metrics with different fingerprints are never mixed
    conditions: dict[str, str] = {}  # fields that must be equal for metrics to be comparable
    under_test: dict[str, str] = {}  # fields that may differ because they are under test
    charts: list[AnyChart] = msgspec.field(default_factory=list, name="exhibits")
    news: CellNews | None = None  # None: it did not run, or there is nothing to compare it with

    @property
    def done(self) -> bool:
        """It ran to its end and needs no attention. A cancelled or never started cell is not done."""
        return self.verdict.good and bool(self.attempts) and not self.attempts[-1].cancelled

    @property
    def unfinished(self) -> bool:
        """It was cancelled, perhaps after a failure, or never started."""
        return not self.attempts or self.attempts[-1].cancelled


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
    """The items of a cell, such as cases, if known before it runs."""

    item: str  # the word for one item: case
    count: int  # items that are run
    ways: int  # requests of all items together
    skipped: tuple[SkippedItem, ...] = ()
    unmatched: tuple[str, ...] = ()  # rules of the trial that match no item, such as `skip[0]`
    how: str = ""  # why there are more requests than items


class Cause(msgspec.Struct, frozen=True):
    """Cells of a run with the same finding, and the fewest axis values that explain them."""

    id: str  # six hex digits of the message without numbers, addresses and paths: the same in every run
    verdict: Verdict
    text: str
    cells: list[str]  # their hashes
    place: dict[str, str] = {}  # at most two axis values that explain the failures; empty if none do
    there: int = 0  # number of these cells with those values
    of: int = 0  # number of all cells of the run with those values
    shared: dict[str, str] = {}  # like `place`: values that only these cells have, but possibly by chance
    news: CauseNews | None = None


class RunResults(msgspec.Struct, frozen=True):
    """A finished run, as stored in results.json. It contains every cell of the plan."""

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
    commit: str = ""  # under test
    target: str = ""  # `--target`, as given by the user
    overrides: list[str] = []  # `--set`, as given by the user
    axes: dict[str, dict[str, list[str]]] = {}  # values of each trial's axes, in the order of the suite
    against: str = ""  # what the run is compared with: "history" or the id of a run; empty if nothing
    changes: dict[str, int] = {}  # number of cells by Change
    past_runs: list[Moment] = []  # earlier runs of these cells, oldest first

    @property
    def exit_code(self) -> ExitCode:
        """Failures take precedence, then timeouts, then infrastructure."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if any(not cell.attempts for cell in self.cells):  # never started: a limit of the run was reached
            return ExitCode.FAILED
        verdict = worst_cell(cell.verdict for cell in self.cells)
        return ExitCode.FAILED if verdict is Verdict.SKIPPED else EXIT_CODES[verdict]  # nothing ran: not a pass
