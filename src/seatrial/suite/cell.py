"""A cell: one concrete combination of a trial's axes, with everything that its job needs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.job import Bound, Contents
from seatrial.suite.models import EnvValue, Machine, Runtime
from seatrial.suite.trial import TrialModel, Xfail


@dataclass(frozen=True)
class Cell:
    id: str  # generic[runtime=pytorch,machine=a100]
    hash: str  # eight hex digits of its content
    trial: str
    model: TrialModel
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
    env: dict[str, EnvValue] = field(
        default_factory=dict
    )  # of the suite, the runtime and the trial, the later over the earlier
    benchmark: str = ""  # the name of its series of figures, the same for all its repeats
    work: str = field(default="", repr=False)  # digest of what its figures depend on, hardware apart
    bounds: tuple[Bound, ...] = ()
    unbounded: str = ""  # why a baseline that the trial names has no bounds for it
    estimate_s: float | None = None
    price_per_hour: float | None = None
    gathered: dict[str, Any] = field(default_factory=dict, repr=False)  # what its kind read of this machine
    contents: Contents | None = field(default=None, repr=False)  # what it consists of, by its kind
