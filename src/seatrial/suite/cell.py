"""A cell: one combination of a trial's axes, as plain data with every `${…}` filled."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.job import Bound, Contents
from seatrial.suite.models import EnvValue, Machine, Runtime
from seatrial.suite.trial import Gathered, Xfail
from seatrial.suite.yaml.source import YamlMap


@dataclass(frozen=True)
class Cell:
    id: str  # generic[runtime=pytorch,machine=a100]
    hash: str  # eight hex digits of its content
    trial: str
    kind: str
    spec: Any  # the trial's fields, as its kind's model; shared by cells with equal values
    axes: dict[str, str]  # axis -> readable label of the value
    values: dict[str, Any] = field(repr=False)  # axis -> the value itself
    machine_name: str
    machine: Machine
    runtime_name: str | None
    runtime: Runtime | None
    target: str
    directory: Path  # of the suite file; relative paths start here
    tags: frozenset[str]
    xfails: tuple[Xfail, ...]  # those that match this cell
    env: dict[str, EnvValue] = field(default_factory=dict)  # of suite, runtime and trial; later ones override
    fields: dict[str, str] = field(default_factory=dict, repr=False)  # dotted name -> text as written, for conditions
    filled: YamlMap = field(default_factory=dict, repr=False)  # trial fields that had a placeholder
    runtime_filled: YamlMap = field(default_factory=dict, repr=False)  # runtime fields that had a placeholder
    benchmark: str = ""  # name of its metric series, the same for all its repeats
    work: str = field(default="", repr=False)  # digest of what its metrics depend on, without hardware
    bounds: tuple[Bound, ...] = ()
    unbounded: str = ""  # why the trial's baseline has no bounds for it
    estimate_s: float | None = None
    gathered: Any = field(default=Gathered(), repr=False)  # what its kind read on this machine: GATHERED of its model
    contents: Contents | None = field(default=None, repr=False)  # its cases, if its kind has any
