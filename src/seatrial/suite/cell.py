"""A cell: one combination of a trial's axes, as plain data in which every `${…}` is filled."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from seatrial.job import Bound, Contents
from seatrial.suite.models import EnvValue, Machine, Runtime
from seatrial.suite.trial import Gathered, RetryOn, TrialModel, Xfail
from seatrial.suite.yaml.source import YamlMap


class Policy(msgspec.Struct, frozen=True):
    """How often and how long a cell is run, and what becomes of metrics without bounds. One for each trial."""

    run_s: float | None
    retries: int
    retry_on: tuple[RetryOn, ...]
    confirm: int
    unjudged: str

    @classmethod
    def of(cls, trial: TrialModel) -> "Policy":
        return cls(trial.timeout.run_s, trial.retries, trial.retry_on, trial.confirm, trial.unjudged)


@dataclass(frozen=True)
class Cell:
    id: str  # generic[runtime=pytorch,machine=a100]
    hash: str  # eight hex digits of its content
    trial: str
    kind: str
    spec: Any  # the trial's fields: the model of its kind. Cells with equal values share one
    policy: Policy
    axes: dict[str, str]  # axis -> readable label of the value
    values: dict[str, Any] = field(repr=False)  # axis -> the value itself
    machine_name: str
    machine: Machine
    runtime_name: str | None
    runtime: Runtime | None
    target: str
    directory: Path  # of the suite file; relative paths start here
    tags: frozenset[str]
    xfails: tuple[Xfail, ...]  # those that are meant for this cell
    env: dict[str, EnvValue] = field(default_factory=dict)  # of suite, runtime and trial, the later over the earlier
    fields: dict[str, str] = field(default_factory=dict, repr=False)  # dotted name -> text as written, for conditions
    filled: YamlMap = field(default_factory=dict, repr=False)  # fields of the trial that had a placeholder
    runtime_filled: YamlMap = field(default_factory=dict, repr=False)  # the same of the runtime
    benchmark: str = ""  # the name of its series of metrics, the same for all its repeats
    work: str = field(default="", repr=False)  # digest of what its metrics depend on, hardware apart
    bounds: tuple[Bound, ...] = ()
    unbounded: str = ""  # why a baseline that the trial names has no bounds for it
    estimate_s: float | None = None
    price_per_hour: float | None = None
    gathered: Any = field(default=Gathered(), repr=False)  # what its kind read of this machine: GATHERED of its model
    contents: Contents | None = field(default=None, repr=False)  # what it consists of, by its kind
