"""A loaded and valid suite."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec
from pydantic import BaseModel, Field

from seatrial.job import Bound
from seatrial.suite.models import MAX_CELLS, Env, EnvValue, Machine, Model, Runtime, SecretSource
from seatrial.suite.trial import TrialModel
from seatrial.suite.values import Duration, Money, Requirement, Text
from seatrial.suite.yaml.source import YamlMap

HERE = "here"  # the implicit target, and the implicit machine on it
LOCAL = "local"  # the kind of that target


class AxisValue(msgspec.Struct, frozen=True):
    label: str
    value: Any
    needs: dict[str, Requirement]  # capabilities of the machine


class Axis(msgspec.Struct, frozen=True):
    name: str
    values: tuple[AxisValue, ...]
    path: tuple[str | int, ...] = ()  # its path in the suite


class Group(msgspec.Struct, frozen=True):
    """Axes that are combined value by value; usually a single axis."""

    axes: tuple[Axis, ...]


def axes_of(groups: Iterable[Group]) -> dict[str, Axis]:
    """All axes of a trial, by name."""
    return {axis.name: axis for group in groups for axis in group.axes}


class TargetEntry(msgspec.Struct, frozen=True):
    """A target of a suite: its kind and that kind's options."""

    kind: str
    options: BaseModel


def own_fields(entry: YamlMap, model: type[BaseModel]) -> YamlMap:
    """The entry's fields for its kind's model: without `kind`, unless the model has that field."""
    return {key: value for key, value in entry.items() if key != "kind" or key in model.model_fields}


class ChosenTarget(msgspec.Struct, frozen=True):
    """The target that every cell runs on, instead of its machine's: `--target`."""

    text: str  # as given by the user
    name: str
    entry: TargetEntry
    data: YamlMap | None = None  # None: an entry of the suite


class BaselineFile(Protocol):
    """A baseline file, as far as planning needs it."""

    @property
    def warnings(self) -> tuple[str, ...]: ...

    def bounds(self, benchmark: str) -> tuple[Bound, ...]: ...


class RunSuite(msgspec.Struct, frozen=True):
    """What a run needs of a suite besides its cells."""

    name: str
    directory: Path  # relative paths start here
    path: Path | None  # None: made from data
    targets: dict[str, TargetEntry]  # `here` is always among them
    secrets: dict[str, SecretSource]
    target_override: str = ""  # `--target`, as given by the user
    overrides: tuple[str, ...] = ()  # `--set`, as given by the user

    def parallel(self, target: str) -> int | None:
        """The suite's limit of jobs at a time on a target."""
        parallel = getattr(self.targets[target].options, "parallel", None)
        return parallel if isinstance(parallel, int) else None


class Suite(RunSuite, frozen=True, kw_only=True):
    """A loaded suite: its trials, machines, runtimes and targets by name. Immutable."""

    data: YamlMap  # as written, with includes merged; JSON-compatible, for `from_data`
    machines: dict[str, Machine]  # as declared; `machine()` also knows the implicit one
    runtimes: dict[str, Runtime]
    env: dict[str, EnvValue]
    trials: dict[str, TrialModel]
    axes: dict[str, tuple[Group, ...]]  # of each trial, all but `repeat`
    max_cells: int
    max_cost: float | None = None
    estimate_s: float | None = None
    baselines: dict[str, BaselineFile] = {}  # by the text of a trial's `baseline`
    override_name: str = ""  # name of the target that every cell runs on, if any

    def repeated(self, count: int) -> "Suite":
        """The same suite with each cell `count` times, overriding its trials."""
        trials = {name: trial.model_copy(update={"repeat": count}) for name, trial in self.trials.items()}
        written = {name: {**entry, "repeat": count} for name, entry in self.data["trials"].items()}
        return msgspec.structs.replace(self, trials=trials, data={**self.data, "trials": written})

    def on(self, target: ChosenTarget) -> "Suite":
        """The same suite with every cell on one target. Machines keep their resources but lose `select`, which
        belongs to their former target."""
        moved = {name: _moved(one, target.name) for name, one in self.machines.items() if one.target != target.name}
        written = {name: {**self.data["machines"][name], "target": target.name, "select": {}} for name in moved}
        added = {} if target.data is None else {target.name: target.data}
        return msgspec.structs.replace(
            self,
            machines={**self.machines, **moved},
            targets={**self.targets, target.name: target.entry},
            data={
                **self.data,
                "machines": {**(self.data.get("machines") or {}), **written},
                "targets": {**(self.data.get("targets") or {}), **added},
            },
            target_override=target.text,
            override_name=target.name,
        )

    def machine(self, name: str) -> Machine:
        if name in self.machines:
            return self.machines[name]
        implicit = _IMPLICIT[name]
        return _moved(implicit, self.override_name) if self.override_name else implicit


def _moved(machine: Machine, target: str) -> Machine:
    return machine.model_copy(update={"target": target, "select": {}})


_IMPLICIT = {HERE: Machine.model_construct()}


class SuiteModel(Model):
    """The suite file. `trials` and `targets` are checked by the models of their kinds."""

    name: Text | None = Field(None, description="Default: the file's name.", pattern=r"^[\w][\w. +-]*$", max_length=100)
    include: tuple[Text, ...] = Field((), description="Other suite files, relative to this one.")
    targets: dict[Text, Any] = Field({}, description="Where jobs run. `here`, this machine, needs no entry.")
    machines: dict[Text, Machine] = Field({}, description="Types of machine that targets offer.")
    runtimes: dict[Text, Runtime] = Field({}, description="Environments to test.")
    secrets: dict[Text, SecretSource] = Field({}, description="Sources of secrets.")
    env: Env = Field({}, description="Environment variables of all jobs.")
    trials: dict[Text, Any] = Field({}, description="What to test.")
    max_cost: Money | None = Field(None, description="A plan is rejected if it may cost more.")
    max_cells: int = Field(MAX_CELLS, strict=True, ge=1, description="A suite with more cells is rejected.")
    estimate_s: Duration | None = Field(None, alias="estimate", description="Time of a cell without another estimate.")
