"""What users write: the models of a suite's entries. Field names with a unit are the user's word plus that unit."""

import sys
from types import ModuleType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue

from seatrial.job import Gpu as JobGpu
from seatrial.job import Resources
from seatrial.suite.placeholders import Fill
from seatrial.suite.values import Argument, Duration, Money, Need, Size, Text, Variable
from seatrial.suite.yaml.source import YamlMap

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

    def written(self, *apart: str) -> YamlMap:
        """What is not a default, as a user would write it, without some fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=set(apart))


# Of the models that every suite needs by themselves and inside of SuiteModel, which takes over what was built for them.
_AT_ONCE = ConfigDict(defer_build=False)


class SecretRef(Model):
    """A value that comes from a secret and is masked wherever it would appear."""

    secret: Text = Field(min_length=1, description="Name of an entry of `secrets`, or of an environment variable.")


EnvValue = Annotated[
    Annotated[Text, Tag("text")] | Annotated[SecretRef, Tag("map")],
    Discriminator(lambda value: "map" if isinstance(value, dict | SecretRef) else "text"),
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
        entry, field = (self.gpu, name.removeprefix("gpu.")) if name.startswith("gpu.") else (self, name)
        if entry is None:
            return 0
        found: str | float | None = getattr(entry, "memory_bytes" if field == "memory" else field)
        return found

    def resources(self) -> Resources:
        gpu = JobGpu(self.gpu.count, self.gpu.model, self.gpu.memory_bytes) if self.gpu else JobGpu()
        return Resources(cpu=self.cpu, memory_bytes=self.memory_bytes, gpu=gpu, select=dict(self.select))

    def content(self) -> YamlMap:
        """What counts for a cell's hash."""
        return self.written("price", "tags", "parallel")


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

    paths: tuple[Text, ...] = Field((), description="Files or folders that must exist.")
    variables: tuple[Text, ...] = Field((), description="Environment variables that must be set.")
    commands: tuple[Text, ...] = Field((), description="Commands that must be on PATH.")


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
    parameters: Annotated[dict[Text, Any], Fill.TYPED] = Field(
        {}, description="Values put after the cell that is tagged `parameters`."
    )
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
    def _names(cls, parameters: YamlMap) -> YamlMap:
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

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> JsonSchemaValue:
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

    def content(self) -> YamlMap:
        """What counts for a cell's hash."""
        return self.written("needs", "tags")

    def work(self) -> YamlMap:
        """What counts for the metrics of a cell."""
        return self.written("needs", "tags", "notebooks", "env")
