"""A suite that was loaded and found sound."""

from pathlib import Path
from typing import Any, Protocol

import msgspec
from pydantic import BaseModel

from seatrial.job import Bound
from seatrial.suite.models import EnvValue, Machine, Runtime, SecretSource, TrialModel
from seatrial.suite.values import Requirement

HERE = "here"  # the implicit target, and the implicit machine on it
LOCAL = "local"  # the kind of that target: this machine


class AxisValue(msgspec.Struct, frozen=True):
    label: str
    value: Any
    needs: dict[str, Requirement]  # capabilities of the machine


class Axis(msgspec.Struct, frozen=True):
    name: str
    values: tuple[AxisValue, ...]
    path: tuple[str | int, ...] = ()  # where the trial has it


class Group(msgspec.Struct, frozen=True):
    """Axes that go together, value by value; mostly one alone."""

    axes: tuple[Axis, ...]

    @property
    def rows(self) -> int:
        return len(self.axes[0].values)


class TargetEntry(msgspec.Struct, frozen=True):
    """A target of a suite: the kind that its `kind` names, and that kind's options."""

    kind: str
    options: BaseModel


class ChosenTarget(msgspec.Struct, frozen=True):
    """The one target that everything runs on, whatever the machines say: `--target`."""

    text: str  # as it was asked for
    name: str
    entry: TargetEntry
    data: dict[str, Any] | None = None  # None: an entry of the suite

    def written(self) -> dict[str, Any]:
        """For the plan of a run; `restore_chosen_target` takes it."""
        return {"text": self.text, "name": self.name, "entry": self.data}


class BaselineFile(Protocol):
    """A file of bounds, as far as planning needs it."""

    @property
    def warnings(self) -> tuple[str, ...]: ...

    def bounds(self, benchmark: str) -> tuple[Bound, ...]: ...


class Suite(msgspec.Struct, frozen=True):
    name: str
    directory: Path  # relative paths start here
    path: Path | None  # None: made from data
    data: dict[str, Any]  # as written, includes merged; JSON can hold it, `from_data` takes it
    targets: dict[str, TargetEntry]  # `here` is always among them
    machines: dict[str, Machine]  # as declared; `machine()` also knows the implicit one
    runtimes: dict[str, Runtime]
    secrets: dict[str, SecretSource]
    env: dict[str, EnvValue]
    trials: dict[str, TrialModel]
    axes: dict[str, tuple[Group, ...]]  # of each trial, all but `repeat`
    max_cells: int
    max_cost: float | None = None
    estimate_s: float | None = None
    baselines: dict[str, BaselineFile] = {}  # by the text of a trial's `baseline`
    moved: ChosenTarget | None = None  # `data` is still as written

    def parallel(self, target: str) -> int | None:
        """Jobs at a time that the suite allows on a target."""
        parallel = getattr(self.targets[target].options, "parallel", None)
        return parallel if isinstance(parallel, int) else None

    def repeated(self, count: int) -> "Suite":
        """The same suite with each cell `count` times, whatever its trials say."""
        trials = {name: trial.model_copy(update={"repeat": count}) for name, trial in self.trials.items()}
        written = {name: {**entry, "repeat": count} for name, entry in self.data["trials"].items()}
        return msgspec.structs.replace(self, trials=trials, data={**self.data, "trials": written})

    def on(self, moved: ChosenTarget) -> "Suite":
        """The same suite with everything on one target. Machines keep their shapes; how another target finds one
        (`select`) says nothing there."""
        machines = {
            name: machine if machine.target == moved.name else _moved(machine, moved.name)
            for name, machine in self.machines.items()
        }
        return msgspec.structs.replace(
            self, machines=machines, targets={**self.targets, moved.name: moved.entry}, moved=moved
        )

    def machine(self, name: str) -> Machine:
        if name in self.machines:
            return self.machines[name]
        implicit = _IMPLICIT[name]
        return implicit if self.moved is None else _moved(implicit, self.moved.name)


def _moved(machine: Machine, target: str) -> Machine:
    return machine.model_copy(update={"target": target, "select": {}})


_IMPLICIT = {HERE: Machine.model_construct()}
