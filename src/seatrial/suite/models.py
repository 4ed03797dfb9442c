"""What users write: the models of a suite's entries. Field names with a unit are the user's word plus that unit."""

import sys
from types import ModuleType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from seatrial.job import Better, Resources
from seatrial.job import Gpu as JobGpu
from seatrial.suite.glob import glob_matches
from seatrial.suite.values import Argument, Duration, Money, Need, Reason, Size, Text, Variable

# pydantic's loader of plugins imports importlib.metadata, and reads the metadata of every installed package: a tenth of
# the time of a short command, and no suite needs a plugin. PYDANTIC_DISABLE_PLUGINS would spare half of that, and be
# inherited by the jobs on this machine. Where pydantic has no such module this does nothing.
_no_plugins = ModuleType("pydantic.plugin._loader")
_no_plugins.__dict__["get_plugins"] = tuple
sys.modules.setdefault(_no_plugins.__name__, _no_plugins)

MAX_CELLS = 100_000
Tags = tuple[Text, ...]
Needs = dict[Text, Need]


class Model(BaseModel):
    """What all entries share: unknown fields are errors, nothing changes after loading. A validator is built when it is
    first used, because building all of them takes longer than most commands."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, validate_default=False, defer_build=True
    )


# Of the models that every suite needs by themselves and inside of SuiteModel, which takes over what was built for them.
_AT_ONCE = ConfigDict(defer_build=False)


class SecretRef(Model):
    """A value that comes from a secret and is masked wherever it would appear."""

    secret: Text = Field(min_length=1, description="Name of an entry of `secrets`, or of an environment variable.")


def _env_tag(value: Any) -> str:
    return "map" if isinstance(value, dict | SecretRef) else "text"


EnvValue = Annotated[
    Annotated[Text, Tag("text")] | Annotated[SecretRef, Tag("map")],
    Discriminator(_env_tag),
]
Env = dict[Variable, EnvValue]


class SecretSource(Model):
    """Where a secret's value comes from: exactly one of `env` and `file`."""

    env: Text | None = Field(None, description="Environment variable of the process that runs Seatrial.")
    file: Text | None = Field(None, description="File that holds the value; its last line break is left out.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("a secret comes from exactly one of `env` and `file`")
        return self


class GpuEntry(Model):
    model: Text | None = Field(None, description="As nvidia-smi names it, or a part of that: A100.")
    count: int = Field(1, strict=True, ge=0, description="GPUs of the machine.")
    memory_bytes: Size | None = Field(None, alias="memory", description="Memory of each GPU.")


class Machine(Model):
    """A shape that a target offers, with its capabilities."""

    model_config = _AT_ONCE
    target: Text = Field("here", description="The target that offers it.")
    gpu: GpuEntry | None = Field(None, description="None: the machine has no GPU.")
    cpu: float | None = Field(None, strict=True, gt=0, description="Cores; a limit for its jobs where the target can.")
    memory_bytes: Size | None = Field(None, alias="memory", description="Main memory; a limit for its jobs.")
    price: Money | None = Field(None, description="Money for an hour.")
    select: dict[Text, Text] = Field({}, description="How the target finds it: labels, a partition.")
    parallel: int | None = Field(None, strict=True, ge=1, description="Jobs at a time on machines of this shape.")
    tags: Tags = Field((), description="For --tag.")
    features: dict[Text, int | float | str] = Field({}, description="Other capabilities: needs: {features.NAME: ...}.")

    CAPABILITIES: ClassVar[tuple[str, ...]] = ("cpu", "memory", "gpu.count", "gpu.model", "gpu.memory")

    def capability(self, name: str) -> str | float | None:
        """What the machine has of `name`; None: it does not say."""
        if name.startswith("features."):
            return self.features.get(name.removeprefix("features."), 0)
        if name == "gpu.count":
            return self.gpu.count if self.gpu else 0
        if name in ("gpu.model", "gpu.memory"):
            if self.gpu is None:
                return 0
            return self.gpu.model if name == "gpu.model" else self.gpu.memory_bytes
        return {"cpu": self.cpu, "memory": self.memory_bytes}[name]

    def resources(self) -> Resources:
        gpu = JobGpu(self.gpu.count, self.gpu.model, self.gpu.memory_bytes) if self.gpu else JobGpu()
        return Resources(cpu=self.cpu, memory_bytes=self.memory_bytes, gpu=gpu, select=dict(self.select))

    def content(self) -> dict[str, Any]:
        """What counts for a cell's hash."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"price", "tags", "parallel"})


class Workspace(Model):
    """Files that the job finds in its work folder: a copy of `path`, or a clone of `git`."""

    path: Text | None = Field(None, description="Folder or file, relative to the suite.")
    git: Text | None = Field(None, description="URL of a repository.")
    ref: Text | None = Field(None, description="Branch, tag or commit of `git`.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.path is None) == (self.git is None):
            raise ValueError("a workspace is exactly one of `path` and `git`")
        if self.ref is not None and self.git is None:
            raise ValueError("`ref` belongs to `git`")
        return self


def names_a_secret(value: Any) -> bool:
    """Whether a value is, or holds, `{secret: NAME}`."""
    if isinstance(value, dict):
        return set(value) == {"secret"} or any(map(names_a_secret, value.values()))
    return isinstance(value, list) and any(map(names_a_secret, value))


Pass = Literal["fresh", "rerun", "restart"]


class Requires(Model):
    """What must be there, else the notebook is skipped with that reason."""

    paths: tuple[Text, ...] = ()
    variables: tuple[Text, ...] = ()
    commands: tuple[Text, ...] = ()


class Notebook(Model):
    path: Text = Field(
        min_length=1, description="In the workspace, or beside the suite: a notebook, a folder of some, or a glob."
    )
    passes: tuple[Pass, ...] = Field(
        ("fresh",), min_length=1, description="A new kernel; again in the same kernel; after a restart of it."
    )
    timeout_s: Duration | None = Field(None, alias="timeout", description="Limit for each pass.")
    cell_timeout_s: Duration | None = Field(None, alias="cell_timeout", description="Limit for each cell.")
    stall_s: Duration | None = Field(None, alias="stall", description="Longest silence of a cell.")
    keep_going: bool = Field(False, strict=True, description="Run the cells after one that failed; each is judged.")
    parameters: dict[Text, Any] = Field({}, description="Values put after the cell that is tagged `parameters`.")
    requires: Requires = Field(
        Requires.model_construct(), description="What must be there; else it is skipped with that reason."
    )

    @field_validator("passes")
    @classmethod
    def _once(cls, passes: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(passes)) < len(passes):
            raise ValueError("each pass at most once")
        return passes

    @field_validator("parameters")
    @classmethod
    def _names(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        for name in parameters:
            if not name.isidentifier():
                raise ValueError(f"parameter {name!r} is not a Python name")
            if names_a_secret(parameters[name]):
                raise ValueError(
                    f"parameter {name!r} cannot be a secret: it would stand in the notebook that is kept; hand it over "
                    "as a variable, `env: {NAME: {secret: ...}}`"
                )
        return parameters


class _OrPath:
    """In the JSON Schema: a text does as well."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, handler(schema)]}


Notebooks = tuple[
    Annotated[Notebook, BeforeValidator(lambda value: {"path": value} if isinstance(value, str) else value), _OrPath()],
    ...,
]


class Runtime(Model):
    """An environment to test: at most one of `python`, `interpreter` and `image`; none is what the machine has."""

    model_config = _AT_ONCE
    python: Argument | None = Field(
        None, description="Version of Python; Seatrial builds the environment.", examples=["3.11"]
    )
    packages: tuple[Text, ...] = Field(
        (),
        description="Installed into the environment; without `python` into one of the Python that Seatrial runs on.",
        examples=[["numpy==1.26.*"]],
    )
    interpreter: Argument | None = Field(None, description="Path or name of an existing Python.")
    image: Argument | None = Field(None, description="Container image.")
    env: Env = Field({}, description="Variables of its jobs.")
    workspace: Workspace | None = Field(None, description="Files that its jobs find in their work folder.")
    notebooks: Notebooks = Field((), description="Notebooks of its own, added to those of a runtime trial.")
    needs: Needs = Field({}, description="Capabilities that a machine must have to run it.")
    tags: Tags = Field((), description="For --tag.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in ("python", "interpreter", "image") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"at most one of `python`, `interpreter` and `image`; this has {' and '.join(given)}")
        if self.packages and given and given != ["python"]:
            raise ValueError(
                f"`packages` are installed into an environment that Seatrial builds; `{given[0]}` is one that is there"
            )
        return self

    def content(self) -> dict[str, Any]:
        """What counts for a cell's hash."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"needs", "tags"})

    def work(self) -> dict[str, Any]:
        """What counts for the figures of a cell."""
        apart = {"needs", "tags", "notebooks", "env"}
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=apart)


class Rule(BaseModel):
    """For which cells something holds: every further field is an axis, with a value, a glob or a list of them."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)
    why: Reason = Field(description="The reason, for everybody who reads the plan or the report.")

    @property
    def axes(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Exclude(Rule):
    """Combinations that are not run. They stay in the plan as holes, with the reason."""


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


class DeclaredFigure(NamedTuple):
    """What a trial says of one of its figures before it is measured."""

    unit: str
    better: Better | None = None


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
    disabled: Reason | None = Field(None, description="Why none of its cells is run for now; they stay as holes.")
    baseline: Text | None = Field(None, description="File of bounds that figures are judged by, relative to the suite.")
    benchmark: Text | None = Field(None, description="Name of a cell's entry in `baseline`; default: the cell's id.")
    confirm: int = Field(
        1, strict=True, ge=0, le=10, description="Further runs that must agree before a figure is out of bounds."
    )

    unjudged: Literal["fail", "record"] = Field(
        "fail", description="What a figure is that has bounds and cannot be judged by them: not passed, or recorded."
    )
    conditions: tuple[Text, ...] = Field(
        (), description="Fields that must be equal for figures to be compared, beside those that always must: env.SEED."
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

    # Fields that only judge what was seen: a kind names its own. Figures do not depend on them.
    JUDGING: ClassVar[frozenset[str]] = frozenset()

    # Fields that are what is judged, by their dotted names, beside the runtime's; all others are conditions.
    UNDER_TEST: ClassVar[frozenset[str]] = frozenset({"workspace", "env"})

    def checks_anything(self, runtime: Runtime | None) -> bool:
        """Whether a cell with this runtime can fail at all. A trial that cannot is a mistake."""
        return True

    def declared_figures(self) -> "dict[str, DeclaredFigure] | None":
        """The figures that a cell can have, by name; None: that is known only when it ran."""
        return None

    def needed_files(self) -> tuple[tuple[tuple[str | int, ...], str], ...]:
        """Files beside the suite without which the trial cannot be judged: where it names each, and its name."""
        return ()

    def notebook_paths(self) -> tuple[str, ...]:
        """Of its field `notebooks`, where the kind has one."""
        return ()

    def step_names(self, runtime: Runtime | None) -> tuple[str, ...]:
        """All names of steps that an xfail may name, as written (with `${axis}` not yet put in)."""
        return ()

    def content(self) -> dict[str, Any]:
        """What counts for a cell's hash. Defaults are left out, so that a new field changes no hash."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=set(self.APART)) | {
            "kind": self.kind
        }

    def work(self) -> dict[str, Any]:
        """What counts for the figures of a cell: its content without what only judges."""
        return self.model_dump(
            mode="json", by_alias=True, exclude_defaults=True, exclude={*self.APART, *self.JUDGING}
        ) | {"kind": self.kind}


class SuiteModel(Model):
    """The suite file. `trials` and `targets` are checked by the models of their kinds."""

    name: Text | None = Field(None, description="Default: the file's name.", pattern=r"^[\w][\w. +-]*$", max_length=100)
    include: tuple[Text, ...] = Field((), description="Other suite files, relative to this one.")
    targets: dict[Text, Any] = Field({}, description="Where jobs run. `here`, this machine, needs no entry.")
    machines: dict[Text, Machine] = Field({}, description="Shapes that the targets offer.")
    runtimes: dict[Text, Runtime] = Field({}, description="Environments to test.")
    secrets: dict[Text, SecretSource] = Field({}, description="Where secrets come from.")
    env: Env = Field({}, description="Variables of all jobs.")
    trials: dict[Text, Any] = Field({}, description="What is run.")
    max_cost: Money | None = Field(None, description="A plan that may cost more is refused.")
    max_cells: int = Field(MAX_CELLS, strict=True, ge=1, description="A suite that expands to more is refused.")
    estimate_s: Duration | None = Field(
        None, alias="estimate", description="Time of a cell that has no other estimate."
    )
