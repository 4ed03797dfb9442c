from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from seatrial.job import Better
from seatrial.suite.command import KnownReader
from seatrial.suite.models import Env, Model, Needs, Runtime, Tags
from seatrial.suite.values import Duration, Reason, Text, glob_matches


class Rule(BaseModel):
    """For which cells something holds: every further field is an axis, with a value, a glob or a list of them."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)
    why: Reason = Field(description="The reason, for everybody who reads the plan or the report.")

    @property
    def axes(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Exclude(Rule):
    """Combinations that are not run. They stay in the plan as excluded, with the reason."""


class Xfail(Rule):
    """What is known to fail. It passing is a finding too."""

    step: Text | None = Field(None, description="Name or glob of the step; none: the whole cell.")

    def covers(self, step: str) -> bool:
        """Whether it is meant for this step; one without `step` is meant for every one."""
        return self.step is None or glob_matches(self.step, step)


class Timeout(Model):
    """Separate clocks. A field that is null is no limit."""

    MAIN: ClassVar[str] = "run"  # the field that somebody means who writes just a duration

    queue_s: Duration | None = Field(None, alias="queue", description="Waiting for a place.")
    run_s: Duration | None = Field(6 * 3600.0, alias="run", description="From start to end.")
    stall_s: Duration | None = Field(None, alias="stall", description="Saying nothing.")
    grace_s: Duration = Field(10.0, alias="grace", description="From a polite end to a forced one.")


_COLUMNS = {"type": "object", "additionalProperties": {"type": "array", "minItems": 1}}
Zip = Annotated[
    tuple[dict[Text, tuple[Any, ...]], ...],
    BeforeValidator(lambda value: [value] if isinstance(value, dict) else value),
    WithJsonSchema({"anyOf": [_COLUMNS, {"type": "array", "items": _COLUMNS}]}),
]
RetryOn = Literal["infra", "failed", "timeout", "invalid"]


class DeclaredMetric(NamedTuple):
    """What a trial says of one of its metrics before it is measured."""

    unit: str
    better: Better | None = None


class Gathered(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a kind reads of this machine for a cell before it runs; the plan keeps it. A kind adds its own fields in a
    subclass, which its model names as GATHERED."""

    missing: list[str] = []  # sentences about what is not there, without which nothing is run


class TrialModel(Model):
    """The fields that every kind of trial has. A kind adds its own in a subclass, `kind: Literal["..."]` among them."""

    kind: Text = Field(description="Kind of the trial.")
    runtime: Any = Field(None, description="A runtime, a list of them, or `all`; the same as an axis of `matrix`.")
    machine: Any = Field(None, description="A machine, a list of them, or `all`; the same as an axis of `matrix`.")
    target: Text | None = Field(None, description="Where it runs, for a trial that needs no machine.")
    matrix: dict[Text, Any] = Field(
        {}, description="Axes: a value, a list of values, or `all` for runtime and machine."
    )
    zip: Zip = Field((), description="Axes that go together, value by value: a map of lists, or a list of such maps.")
    needs: Needs = Field({}, description="Capabilities that a machine must have.")
    exclude: tuple[Exclude, ...] = Field((), description="Combinations that are not run, each with `why`.")
    xfail: tuple[Xfail, ...] = Field((), description="What is known to fail, each with `why`.")
    tags: Tags = Field((), description="For --tag.")
    env: Env = Field({}, description="Variables of its jobs; over those of the runtime and the suite.")
    timeout: Timeout = Field(Timeout.model_construct(), description="Limits for queue, run, stall and grace.")
    retries: int = Field(
        1, strict=True, ge=0, le=100, description="Further attempts at a cell, for what `retry_on` names."
    )
    retry_on: tuple[RetryOn, ...] = Field(("infra",), description="Verdicts after which a cell is tried again.")
    repeat: int = Field(1, strict=True, ge=1, description="Each cell this many times, as an axis `repeat`.")
    estimate_s: Duration | None = Field(None, alias="estimate", description="Time of a cell that has no history.")
    disabled: Reason | None = Field(
        None, description="Why none of its cells is run for now; they stay in the plan as excluded."
    )
    baseline: Text | None = Field(None, description="File of bounds that metrics are judged by, relative to the suite.")
    benchmark: Text | None = Field(None, description="Name of a cell's entry in `baseline`; default: the cell's id.")
    confirm: int = Field(
        1, strict=True, ge=0, le=10, description="Further runs that must agree before a metric is out of bounds."
    )

    unjudged: Literal["fail", "record"] = Field(
        "fail", description="What a metric is that has bounds and cannot be judged by them: not passed, or recorded."
    )
    conditions: tuple[Text, ...] = Field(
        (), description="Fields that must be equal for metrics to be compared, beside those that always must: env.SEED."
    )
    under_test: tuple[Text, ...] = Field(
        (), description="Fields that may differ, for they are what is judged: command, hardware.cpu."
    )

    # Fields that say where, when and how often a cell runs, not what it is: they do not count for its hash.
    APART: ClassVar[frozenset[str]] = frozenset(
        [
            "runtime",
            "machine",
            "target",
            "matrix",
            "zip",
            "needs",
            "exclude",
            "xfail",
            "tags",
            "timeout",
            "retries",
            "retry_on",
            "repeat",
            "estimate_s",
            "disabled",
            "baseline",
            "benchmark",
            "confirm",
            "unjudged",
            "conditions",
            "under_test",
        ]
    )

    GATHERED: ClassVar[type[Gathered]] = Gathered

    # Fields that only judge what was seen: a kind names its own. Metrics do not depend on them.
    JUDGING: ClassVar[frozenset[str]] = frozenset()

    # Fields that are what is judged, by their dotted names, beside the runtime's; all others are conditions.
    UNDER_TEST: ClassVar[frozenset[str]] = frozenset({"workspace", "env"})

    def checks_anything(self, runtime: Runtime | None) -> bool:
        """Whether a cell with this runtime can fail at all. A trial that cannot is a mistake."""
        return True

    def declared_metrics(self) -> "dict[str, DeclaredMetric] | None":
        """The metrics that a cell can have, by name; None: that is known only when it ran."""
        return None

    def needed_files(self) -> tuple[tuple[tuple[str | int, ...], str], ...]:
        """Files beside the suite without which the trial cannot be judged: where it names each, and its name."""
        return ()

    def baseline_files(self) -> dict[str, tuple[str, ...]]:
        """Each file of bounds, with the beginnings of the names of metrics that it is for."""
        return {self.baseline: ("",)} if self.baseline is not None else {}

    def check_names(self, readers: Mapping[str, KnownReader]) -> Iterable[tuple[tuple[str | int, ...], str]]:
        """What is wrong with names of readers and of metrics that they give, each with its place in the trial."""
        return ()

    def notebook_paths(self) -> tuple[str, ...]:
        """Of its field `notebooks`, where the kind has one."""
        return ()

    def step_names(self, runtime: Runtime | None) -> tuple[str, ...]:
        """All names of steps that an xfail may name, as written (with `${axis}` not yet put in)."""
        return ()

    def content(self) -> dict[str, Any]:
        """What counts for a cell's hash. Defaults are left out, so that a new field changes no hash."""
        return self.written(*self.APART) | {"kind": self.kind}

    def work(self) -> dict[str, Any]:
        """What counts for the metrics of a cell: its content without what only judges."""
        return self.written(*self.APART, *self.JUDGING) | {"kind": self.kind}
