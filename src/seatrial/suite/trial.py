"""Fields that every kind of trial has, and the cells that it is expanded into."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from seatrial.job import Better, Bound, Contents
from seatrial.suite.command import KnownReader
from seatrial.suite.models import Env, EnvValue, Machine, Model, Needs, Runtime, Tags
from seatrial.suite.values import Duration, Reason, Text, glob_matches
from seatrial.suite.yaml.source import YamlMap


class Rule(BaseModel):
    """Selects cells: every other field is an axis, with a value, a glob or a list of them."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)
    why: Reason = Field(description="Reason, shown in the plan and report.")

    @property
    def axes(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Exclude(Rule):
    """Combinations that are not run. The plan lists them as excluded, with the reason."""


class Xfail(Rule):
    """A known failure. Passing is a finding too."""

    step: Text | None = Field(None, description="Name or glob of the step; default: the whole cell.")

    def covers(self, step: str) -> bool:
        """Whether it applies to this step; without `step` it applies to all."""
        return self.step is None or glob_matches(self.step, step)


class Timeout(Model):
    """Time limits. null means no limit."""

    MAIN: ClassVar[str] = "run"  # suggested if a user writes only a duration

    queue_s: Duration | None = Field(None, alias="queue", description="Limit for waiting in the queue.")
    run_s: Duration | None = Field(6 * 3600.0, alias="run", description="Limit from start to end.")
    stall_s: Duration | None = Field(None, alias="stall", description="Limit without output.")
    grace_s: Duration = Field(10.0, alias="grace", description="Time to exit after SIGTERM before SIGKILL.")


_COLUMNS = {"type": "object", "additionalProperties": {"type": "array", "minItems": 1}}
Zip = Annotated[
    tuple[dict[Text, tuple[Any, ...]], ...],
    BeforeValidator(lambda value: [value] if isinstance(value, dict) else value),
    WithJsonSchema({"anyOf": [_COLUMNS, {"type": "array", "items": _COLUMNS}]}),
]
RetryOn = Literal["infra", "failed", "timeout", "invalid"]


class DeclaredMetric(NamedTuple):
    """A metric as a trial declares it before it is measured."""

    unit: str
    better: Better | None = None


class Gathered(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a kind reads on this machine for a cell before it runs; stored in the plan. A kind adds its own fields in a
    subclass, which its model names as GATHERED."""

    missing: list[str] = []  # messages about missing files; the cell is not run


class TrialModel(Model):
    """The fields of every kind of trial. A kind adds its own in a subclass, including `kind: Literal["..."]`."""

    kind: Text = Field(description="Kind of the trial.")
    runtime: Any = Field(None, description="A runtime, a list, or `all`; same as an axis in `matrix`.")
    machine: Any = Field(None, description="A machine, a list, or `all`; same as an axis in `matrix`.")
    target: Text | None = Field(None, description="Where the trial runs, if it has no `machine` axis.")
    matrix: dict[Text, Any] = Field(
        {}, description="Axes: a value, a list of values, or `all` for runtime and machine."
    )
    zip: Zip = Field((), description="Axes combined value by value: a map of lists, or a list of such maps.")
    needs: Needs = Field({}, description="Capabilities a machine needs.")
    exclude: tuple[Exclude, ...] = Field((), description="Combinations not to run, each with `why`.")
    xfail: tuple[Xfail, ...] = Field((), description="Known failures, each with `why`.")
    tags: Tags = Field((), description="Tags for --tag.")
    env: Env = Field({}, description="Environment variables; override those of the runtime and suite.")
    timeout: Timeout = Field(Timeout.model_construct(), description="Limits for queue, run, stall and grace.")
    retries: int = Field(1, strict=True, ge=0, le=100, description="Retries of a cell with a verdict in `retry_on`.")
    retry_on: tuple[RetryOn, ...] = Field(("infra",), description="Verdicts to retry.")
    repeat: int = Field(1, strict=True, ge=1, description="Runs of each cell, as an axis `repeat`.")
    estimate_s: Duration | None = Field(None, alias="estimate", description="Time of a cell without history.")
    disabled: Reason | None = Field(
        None, description="Reason to turn off the trial; the plan lists its cells as excluded."
    )
    baseline: Text | None = Field(None, description="Baseline file with the bounds of metrics, relative to the suite.")
    benchmark: Text | None = Field(None, description="Name of a cell's entry in `baseline`; default: the cell's id.")
    confirm: int = Field(
        1, strict=True, ge=0, le=10, description="Additional runs that must confirm a metric out of bounds."
    )

    unjudged: Literal["fail", "record"] = Field(
        "fail", description="If a metric with bounds cannot be checked: fail the cell, or only record the metric."
    )
    conditions: tuple[Text, ...] = Field(
        (), description="Additional fields that must be equal for metrics to be comparable: env.SEED."
    )
    under_test: tuple[Text, ...] = Field((), description="Fields under test, allowed to differ: command, hardware.cpu.")

    # Fields about where, when and how often a cell runs. They do not count for its hash.
    APART: ClassVar[frozenset[str]] = (
        frozenset({"runtime", "machine", "target", "matrix", "zip", "needs", "exclude", "xfail", "tags", "disabled"})
        | frozenset({"timeout", "retries", "retry_on", "repeat", "estimate_s", "confirm"})
        | frozenset({"baseline", "benchmark", "unjudged", "conditions", "under_test"})
    )

    GATHERED: ClassVar[type[Gathered]] = Gathered

    # Fields that only check results; each kind lists its own. Metrics do not depend on them.
    JUDGING: ClassVar[frozenset[str]] = frozenset()

    # Dotted names of the fields under test, in addition to the runtime's. All others are conditions.
    UNDER_TEST: ClassVar[frozenset[str]] = frozenset({"workspace", "env"})

    def checks_anything(self, runtime: Runtime | None) -> bool:
        """Whether a cell with this runtime can fail. A trial that cannot fail is an error."""
        return True

    def declared_metrics(self) -> "dict[str, DeclaredMetric] | None":
        """The metrics that a cell can have, by name; None if unknown before it runs."""
        return None

    def needed_files(self) -> tuple[tuple[tuple[str | int, ...], str], ...]:
        """Files that the trial's checks need, relative to the suite: the field of each, and its path."""
        return ()

    def warnings(self) -> tuple[str, ...]:
        """Settings that make a check accept almost anything."""
        return ()

    def storage(self) -> tuple[str, ...]:
        """The fsspec URLs that results are read from after the job."""
        return ()

    def baseline_files(self) -> dict[str, tuple[str, ...]]:
        """Each baseline file, with the prefixes of the metrics that it covers."""
        return {self.baseline: ("",)} if self.baseline is not None else {}

    def check_names(self, readers: Mapping[str, KnownReader]) -> Iterable[tuple[tuple[str | int, ...], str]]:
        """Errors in the names of readers and their metrics, each with its path in the trial."""
        return ()

    def notebook_paths(self) -> tuple[str, ...]:
        """The paths in its field `notebooks`, if the kind has one."""
        return ()

    def step_names(self, runtime: Runtime | None) -> tuple[str, ...]:
        """All step names that an xfail may use, as written (with `${axis}` not filled)."""
        return ()

    def content(self) -> dict[str, Any]:
        """The fields that count for a cell's hash. Without defaults, so that a new field changes no hash."""
        return self.written(*self.APART) | {"kind": self.kind}

    def work(self) -> dict[str, Any]:
        """The fields that a cell's metrics depend on: its content without checks."""
        return self.written(*self.APART, *self.JUDGING) | {"kind": self.kind}


@dataclass(frozen=True)
class Cell:
    """One combination of a trial's axes, as plain data with every `${…}` filled."""

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
