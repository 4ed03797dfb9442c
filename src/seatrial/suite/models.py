"""Models of a suite's entries. A field name with a unit suffix is the user's field plus its unit."""

import re
import sys
from types import ModuleType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue

from seatrial.job import Accelerator, Resources, Tpu
from seatrial.job import Gpu as JobGpu
from seatrial.suite.placeholders import Fill
from seatrial.suite.values import Argument, Duration, Money, Need, Size, Text, Variable, names_several
from seatrial.suite.yaml.source import YamlMap

# pydantic's plugin loader reads the metadata of every installed package, a tenth of the time of a short command.
# PYDANTIC_DISABLE_PLUGINS would save only half of that, and local jobs would inherit it. Without such a module in
# pydantic, this does nothing.
_no_plugins = ModuleType("pydantic.plugin._loader")
_no_plugins.__dict__["get_plugins"] = tuple
sys.modules.setdefault(_no_plugins.__name__, _no_plugins)

MAX_CELLS = 100_000
MAX_HOSTS = 1024  # of a job
Tags = tuple[Text, ...]
Needs = dict[Text, Need]


class Model(BaseModel):
    """Base of all entries: unknown fields are errors, instances are immutable. Validators are built when first used,
    because building all of them takes longer than most commands."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, validate_default=False, defer_build=True
    )

    def written(self, *apart: str) -> YamlMap:
        """The non-default fields as a user would write them, without the fields `apart`."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=set(apart))


# For models that every suite uses alone and inside SuiteModel, which reuses their validators.
_AT_ONCE = ConfigDict(defer_build=False)


class SecretRef(Model):
    """A value from a secret. It is masked wherever it would appear."""

    secret: Text = Field(min_length=1, description="Name of an entry in `secrets`, or of an environment variable.")


# For a union of a map and one other type: errors are then about the one that was written.
PLAIN_OR_MAP = Discriminator(lambda value: "map" if isinstance(value, dict | Model) else "plain")
EnvValue = Annotated[Annotated[Text, Tag("plain")] | Annotated[SecretRef, Tag("map")], PLAIN_OR_MAP]
Env = dict[Variable, EnvValue]


class SecretSource(Model):
    """Where a secret's value comes from: exactly one of `env` and `file`."""

    env: Text | None = Field(None, description="Environment variable of the Seatrial process.")
    file: Text | None = Field(None, description="File with the value; a final line break is removed.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("set exactly one of `env`, `file`")
        return self


class GpuEntry(Model):
    model: Text | None = Field(None, description="Full or partial name in nvidia-smi: A100.")
    count: int = Field(1, strict=True, ge=0, description="Number of GPUs.")
    memory_bytes: Size | None = Field(None, alias="memory", description="Memory of each GPU.")


class TpuEntry(Model):
    """A TPU slice, or several slices that work together. A job runs on all its hosts."""

    type: Text = Field(min_length=1, description="v4, v5e, v5p, v6e, tpu7x, or the accelerator label of GKE.")
    topology: Text = Field(description="Chips along each side of a slice: 2x2, 4x4x8.")
    slices: int = Field(1, strict=True, ge=1, description="Number of slices.")
    chips: int | None = Field(
        None, strict=True, ge=1, description="Chips of each host; default: 4, or all chips of a smaller slice."
    )

    @field_validator("topology")
    @classmethod
    def _sides(cls, topology: str) -> str:
        if not re.fullmatch(r"[1-9]\d{0,3}(x[1-9]\d{0,3}){1,2}", topology, re.ASCII):
            raise ValueError(f"invalid topology {topology!r}; use the chips along each side: 2x2, 4x4x8")
        return topology

    @model_validator(mode="after")
    def _whole_hosts(self) -> Self:
        tpu = self.resources()
        if tpu.slice_hosts * tpu.host_chips != tpu.slice_chips:
            chips = f"{tpu.slice_chips} chips cannot be divided into hosts of {tpu.host_chips}"
            raise ValueError(f"topology {self.topology}: {chips}; set `chips` to the chips of one host")
        if tpu.hosts > MAX_HOSTS:
            raise ValueError(f"{tpu.hosts} hosts are too many (limit {MAX_HOSTS})")
        return self

    def resources(self) -> Tpu:
        return Tpu(self.type, self.topology, self.slices, self.chips or 0)


class AcceleratorEntry(Model):
    """Any other device of a cluster."""

    resource: Text = Field(min_length=1, description="Resource name on the cluster, such as example.com/ipu.")
    count: int = Field(1, strict=True, ge=1, description="Number of devices.")


class Machine(Model):
    """A type of machine that a target offers, with its capabilities."""

    model_config = _AT_ONCE
    target: Text = Field("here", description="Target that offers this machine.")
    gpu: GpuEntry | None = Field(None, description="GPUs; not checked if not set.")
    tpu: TpuEntry | None = Field(None, description="TPU slices (Kubernetes on Google Cloud).")
    accelerator: AcceleratorEntry | None = Field(None, description="Other devices, by resource name (Kubernetes).")
    cpu: float | None = Field(None, strict=True, gt=0, description="Cores; limits its jobs if the target supports it.")
    memory_bytes: Size | None = Field(None, alias="memory", description="Main memory; limits its jobs.")
    price: Money | None = Field(None, description="Price per hour.")
    select: dict[Text, Text] = Field({}, description="Labels of its nodes.")
    parallel: int | None = Field(None, strict=True, ge=1, description="Maximum number of jobs at a time.")
    tags: Tags = Field((), description="Tags for --tag.")
    features: dict[Text, int | float | str] = Field({}, description="Other capabilities: needs: {features.NAME: ...}.")

    CAPABILITIES: ClassVar[tuple[str, ...]] = (
        "cpu", "memory", "gpu.count", "gpu.model", "gpu.memory", "tpu.type", "tpu.topology", "tpu.slices",
        "accelerator.count", "accelerator.resource",
    )  # fmt: skip

    def capability(self, name: str) -> str | float | None:
        """The machine's value of a capability; None if it is not declared."""
        if name.startswith("features."):
            return self.features.get(name.removeprefix("features."), 0)
        group, _, field = name.rpartition(".")
        entry = getattr(self, group) if group else self
        if entry is None:
            return 0
        found: str | float | None = getattr(entry, "memory_bytes" if field == "memory" else field)
        return found

    def resources(self) -> Resources:
        gpu = JobGpu(self.gpu.count, self.gpu.model, self.gpu.memory_bytes) if self.gpu else JobGpu()
        tpu = self.tpu.resources() if self.tpu else None
        other = Accelerator(self.accelerator.resource, self.accelerator.count) if self.accelerator else None
        return Resources(self.cpu, self.memory_bytes, gpu, dict(self.select), tpu, other)

    @property
    def hosts(self) -> int:
        """Number of hosts of its jobs, if the trial does not say."""
        return self.tpu.resources().hosts if self.tpu else 1

    def content(self) -> YamlMap:
        """The fields that count for a cell's hash."""
        return self.written("price", "tags", "parallel")


class Workspace(Model):
    """Files in the job's work folder: a copy of `path`, or a clone of `git`."""

    path: Text | None = Field(None, description="Folder or file, relative to the suite.")
    git: Text | None = Field(None, description="Repository URL.")
    ref: Text | None = Field(None, description="Branch, tag or commit of `git`.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.path is None) == (self.git is None):
            raise ValueError("set exactly one of `path`, `git`")
        if self.ref is not None and self.git is None:
            raise ValueError("`ref` needs `git`")
        return self


def names_a_secret(value: Any) -> bool:
    """Whether a value is or contains `{secret: NAME}`."""
    if isinstance(value, dict):
        return set(value) == {"secret"} or any(map(names_a_secret, value.values()))
    return isinstance(value, list) and any(map(names_a_secret, value))


Pass = Literal["fresh", "rerun", "restart"]


class Requires(Model):
    """Requirements of a notebook; it is skipped if one is missing."""

    paths: tuple[Text, ...] = Field((), description="Files or folders that must exist.")
    variables: tuple[Text, ...] = Field((), description="Environment variables that must be set.")
    commands: tuple[Text, ...] = Field((), description="Commands that must be on PATH.")


class Notebook(Model):
    path: Text = Field(
        min_length=1, description="A notebook, a folder or a glob, in the workspace or next to the suite."
    )
    name: Text = Field("", description="Name of its steps, to list the same notebook again; default: its path.")
    passes: tuple[Pass, ...] = Field(
        ("fresh",), min_length=1, description="In a new kernel; again in the same kernel; after a kernel restart."
    )
    timeout_s: Duration | None = Field(None, alias="timeout", description="Limit for each pass.")
    cell_timeout_s: Duration | None = Field(None, alias="cell_timeout", description="Limit for each notebook cell.")
    stall_s: Duration | None = Field(None, alias="stall", description="Limit for a notebook cell without output.")
    keep_going: bool = Field(False, strict=True, description="Run and check the notebook cells after one that failed.")
    background_errors: bool = Field(
        True, strict=True, description="Whether an exception in a thread or asyncio task fails its notebook cell."
    )
    parameters: Annotated[dict[Text, Any], Fill.TYPED] = Field(
        {}, description="Values inserted after the notebook cell tagged `parameters`."
    )
    requires: Requires = Field(
        Requires.model_construct(), description="Paths, variables and commands; without one, the notebook is skipped."
    )

    @field_validator("passes")
    @classmethod
    def _once(cls, passes: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(passes)) < len(passes):
            raise ValueError(f"duplicate pass in {', '.join(passes)}")
        return passes

    @model_validator(mode="after")
    def _named_alone(self) -> Self:
        if self.name and names_several(self.path):
            raise ValueError("`name` needs the path of one notebook (NAME.ipynb), not a folder or glob")
        return self

    @field_validator("parameters")
    @classmethod
    def _names(cls, parameters: YamlMap) -> YamlMap:
        for name in parameters:
            if not name.isidentifier():
                raise ValueError(f"invalid parameter name {name!r}; use a Python identifier")
            if names_a_secret(parameters[name]):
                use = "use `env: {NAME: {secret: ...}}`"
                raise ValueError(f"parameter {name!r} cannot be a secret, because the executed notebook is kept; {use}")
        return parameters


class _OrPath:
    """Also accepts a string, in the JSON Schema."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler(schema)]}


Notebooks = tuple[
    Annotated[Notebook, BeforeValidator(lambda value: {"path": value} if isinstance(value, str) else value), _OrPath()],
    ...,
]


class Runtime(Model):
    """An environment to test: at most one of `python`, `interpreter` and `image`; without, the machine's own."""

    model_config = _AT_ONCE
    python: Argument | None = Field(
        None, description="Python version; Seatrial builds the environment.", examples=["3.11"]
    )
    packages: tuple[Text, ...] = Field(
        (),
        description="Packages to install; without `python`, the environment uses Seatrial's own Python.",
        examples=[["numpy==1.26.*"]],
    )
    interpreter: Argument | None = Field(None, description="Path or name of an existing Python.")
    image: Argument | None = Field(None, description="Container image.")
    env: Env = Field({}, description="Environment variables of its jobs.")
    workspace: Workspace | None = Field(None, description="Files in the work folder of its jobs.")
    notebooks: Notebooks = Field((), description="Notebooks to run in addition to those of a runtime trial.")
    needs: Needs = Field({}, description="Capabilities a machine needs to run it.")
    tags: Tags = Field((), description="Tags for --tag.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in ("python", "interpreter", "image") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"set at most one of `python`, `interpreter`, `image`; got {' and '.join(given)}")
        if self.packages and given and given != ["python"]:
            raise ValueError(f"`packages` cannot be combined with `{given[0]}`; use it with `python`")
        return self

    def content(self) -> YamlMap:
        """The fields that count for a cell's hash."""
        return self.written("needs", "tags")

    def work(self) -> YamlMap:
        """The fields that a cell's metrics depend on."""
        return self.written("needs", "tags", "notebooks", "env")
