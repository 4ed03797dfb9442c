"""A suite that was loaded and found sound."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from seatrial.suite.baseline import Baselines
from seatrial.suite.models import EnvValue, Machine, Runtime, SecretSource, TrialModel
from seatrial.suite.values import Requirement

HERE = "here"  # the implicit target, and the implicit machine on it


@dataclass(frozen=True)
class AxisValue:
    label: str
    value: Any
    needs: dict[str, Requirement]  # capabilities of the machine


@dataclass(frozen=True)
class Axis:
    name: str
    values: tuple[AxisValue, ...]
    path: tuple[str | int, ...] = ()  # where the trial has it


@dataclass(frozen=True)
class Group:
    """Axes that go together, value by value; mostly one alone."""

    axes: tuple[Axis, ...]

    @property
    def rows(self) -> int:
        return len(self.axes[0].values)


@dataclass(frozen=True)
class TargetEntry:
    """A target of a suite: the kind that its `kind` names, and that kind's options."""

    kind: str
    options: BaseModel


@dataclass(frozen=True)
class Suite:
    name: str
    directory: Path  # relative paths start here
    path: Path | None  # None: made from data
    data: dict[str, Any] = field(repr=False)  # as written, includes merged; JSON can hold it, `from_data` takes it
    targets: dict[str, TargetEntry]  # `here` is always among them
    machines: dict[str, Machine]  # as declared; `machine()` also knows the implicit one
    runtimes: dict[str, Runtime]
    secrets: dict[str, SecretSource]
    env: dict[str, EnvValue]
    trials: dict[str, TrialModel]
    axes: dict[str, tuple[Group, ...]] = field(repr=False)  # of each trial, all but `repeat`
    max_cells: int
    max_cost: float | None = None
    estimate_s: float | None = None
    baselines: dict[str, Baselines] = field(default_factory=dict, repr=False)  # by the text of a trial's `baseline`

    def parallel(self, target: str) -> int | None:
        """Jobs at a time that the suite allows on a target."""
        parallel = getattr(self.targets[target].options, "parallel", None)
        return parallel if isinstance(parallel, int) else None

    def repeated(self, count: int) -> "Suite":
        """The same suite with each cell `count` times, whatever its trials say."""
        trials = {name: trial.model_copy(update={"repeat": count}) for name, trial in self.trials.items()}
        written = {name: {**entry, "repeat": count} for name, entry in self.data["trials"].items()}
        return replace(self, trials=trials, data={**self.data, "trials": written})

    def machine(self, name: str) -> Machine:
        return self.machines[name] if name in self.machines else _IMPLICIT[name]


_IMPLICIT = {HERE: Machine()}
