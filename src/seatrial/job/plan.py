"""The schema of `plan.json`: everything that a run needs, without the suite. `record/folder.py` writes and reads it,
`plan/file.py` converts it."""

from typing import Any

import msgspec

from seatrial.job.conditions import WrittenFields
from seatrial.job.metric import Bound
from seatrial.job.reading import JsonObject
from seatrial.job.results import Excluded

PLAN_VERSION = 2


class RunOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Options of a run."""

    parallel: int | None = None
    retries: int | None = None
    max_failures: int | None = None
    max_cost: float | None = None
    commit: str = ""  # under test
    out: str = ""  # address to copy the finished run folder to
    strict: bool = False  # metrics without bounds and open regressions exit 1
    against: str = ""  # the run to compare with; empty: each cell's previous run


class PlannedSuite(msgspec.Struct, frozen=True):
    """The suite that the cells come from."""

    name: str = ""
    directory: str = ""  # relative paths start here
    path: str | None = None
    target: str = ""  # `--target`, as given by the user; already applied
    overrides: tuple[str, ...] = ()  # `--set`; already applied


class PlannedRuntime(msgspec.Struct, frozen=True, omit_defaults=True):
    spec: JsonObject | None = None  # None: cells without a runtime
    env: JsonObject = {}  # as written, including the suite's
    fields: WrittenFields = WrittenFields()


class PlannedTrial(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: str
    spec: JsonObject = {}  # the fields that are equal in all of its cells
    env: JsonObject = {}  # as written
    fields: WrittenFields = WrittenFields()
    axes: dict[str, list[tuple[str, Any]]] = {}  # labels and values


class PlannedXfail(msgspec.Struct, frozen=True, omit_defaults=True):
    why: str
    step: str | None = None


class PlannedCell(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    hash: str
    axes: dict[str, str]  # labels
    trial: str
    tags: frozenset[str] = frozenset()
    estimate_s: float | None = None
    target: str = ""
    machine: str = ""
    runtime: str = ""  # name of a runtime; with @ and a digest if it contains the cell's values
    spec: JsonObject = {}  # the fields that had a placeholder, filled
    env: dict[str, str] = {}  # the variables that had a placeholder, filled
    benchmark: str = ""  # empty: the id
    work: str = ""
    bounds: tuple[Bound, ...] = ()
    unbounded: str = ""
    xfails: tuple[PlannedXfail, ...] = ()
    gathered: str = ""  # a key of `data`


class PlanFile(msgspec.Struct, frozen=True):
    """A plan. Those of Seatrial 0.2 have version 1 and only the first five fields: enough to report, not to resume."""

    cells: list[PlannedCell]
    excluded: list[Excluded] = msgspec.field(name="holes")
    axes: dict[str, dict[str, list[str]]] = {}  # labels of each trial's axes, in the order of the suite
    options: RunOptions = RunOptions()
    seatrial: str = ""
    version: int = PLAN_VERSION
    run: str = ""
    suite: PlannedSuite = PlannedSuite()
    targets: dict[str, JsonObject] = {}
    secrets: dict[str, JsonObject] = {}
    machines: dict[str, JsonObject] = {}
    runtimes: dict[str, PlannedRuntime] = {}
    trials: dict[str, PlannedTrial] = {}
    data: dict[str, msgspec.Raw] = {}  # gathered by kinds, by digest
    counts: dict[str, int] = {}
    hours: float = 0.0
    price: float = 0.0
