"""The schema of `plan.json`: everything that a run needs to go on, without the suite. `record/folder.py` writes and
reads it, `plan/file.py` converts it."""

from typing import Any

import msgspec

from seatrial.job.conditions import WrittenFields
from seatrial.job.metric import Bound
from seatrial.job.reading import JsonObject
from seatrial.job.results import Excluded

PLAN_VERSION = 2


class RunOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a run goes about its plan."""

    parallel: int | None = None
    retries: int | None = None
    max_failures: int | None = None
    max_cost: float | None = None
    commit: str = ""  # of what is tested
    out: str = ""  # address that the folder is copied to when the run is over
    strict: bool = False  # metrics without bounds, and regressions inside them, are no pass
    against: str = ""  # the run that news are relative to; empty: each cell's last run


class PlannedSuite(msgspec.Struct, frozen=True):
    """Where the cells come from."""

    name: str = ""
    directory: str = ""  # relative paths start here
    path: str | None = None
    target: str = ""  # `--target`, as it was asked for; it is applied already


class PlannedRuntime(msgspec.Struct, frozen=True, omit_defaults=True):
    spec: JsonObject | None = None  # None: cells without a runtime
    env: JsonObject = {}  # with the suite's, as written
    fields: WrittenFields = WrittenFields()


class PlannedTrial(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: str
    spec: JsonObject = {}  # the fields that are the same in all of its cells
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
    runtime: str = ""  # the name of a runtime; with @ and a digest, where the cell's values are in it
    spec: JsonObject = {}  # the fields that had a placeholder, filled
    env: dict[str, str] = {}  # the same
    benchmark: str = ""  # empty: the id
    work: str = ""
    bounds: tuple[Bound, ...] = ()
    unbounded: str = ""
    xfails: tuple[PlannedXfail, ...] = ()
    gathered: str = ""  # a key of `data`


class PlanFile(msgspec.Struct, frozen=True):
    """Plans of Seatrial 0.2 have version 1 and only the first five fields: enough to report, not to go on."""

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
    data: dict[str, msgspec.Raw] = {}  # what kinds gathered, by digest
    counts: dict[str, int] = {}
    hours: float = 0.0
    price: float = 0.0
