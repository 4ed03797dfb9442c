"""What users write of a training trial: a command, and what its log, its files and its figures should be."""

import math
import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from seatrial.job import Better
from seatrial.suite import DeclaredFigure, Duration, Model, Need, Requirement, Runtime, Text, TrialModel, Workspace
from seatrial.trial.training.pattern import LOSS, STEP, STEP_TIME_PATTERN, problem

_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_NAMED = re.compile(r"[A-Za-z0-9_][\w.+-]*")


def _pattern(text: str) -> str:
    if wrong := problem(text):
        raise ValueError(wrong)
    return text


def _reading(text: str) -> str:
    if wrong := problem(text, group=True):
        raise ValueError(wrong)
    return text


def _share(value: Any) -> float:
    """`5%` or 0.05."""
    match = _SHARE.fullmatch(value.strip()) if isinstance(value, str) else None
    share = float(match[1]) / 100 if match else value
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise ValueError(f"{value!r} is not a share; write for example 5%")
    return float(share)


def _tolerance(value: Any) -> str | float:
    """A distance (0.001), or a share of what is expected (2%)."""
    if isinstance(value, str) and _SHARE.fullmatch(value.strip()):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is not a tolerance; write a distance (0.001) or a share (2%)")
    return float(value)


def _amount(requirement: Requirement) -> Requirement:
    if any(isinstance(operand, str) for operand in requirement.operands):
        raise ValueError(f'{requirement.text!r} is no amount; write a number, or ">=15", "<2Gi"')
    return requirement


PatternText = Annotated[Text, AfterValidator(_pattern)]
FigurePattern = Annotated[Text, AfterValidator(_reading)]  # a pattern whose first group is a number
PatternTexts = Annotated[
    tuple[PatternText, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
_PERCENT = {"type": "string", "pattern": r"^\d+(\.\d+)?\s*%$"}
Fraction = Annotated[
    float,
    BeforeValidator(_share),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, _PERCENT]}),
]
_Tolerance = Annotated[
    str | float,
    BeforeValidator(_tolerance),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, _PERCENT]}),
]
Amount = Annotated[Need, AfterValidator(_amount)]
FiniteNumber = Annotated[float, Field(allow_inf_nan=False)]
_Whole = Annotated[int, Field(strict=True, ge=0)]


class LogChecks(Model):
    """What the job prints, all hosts and both streams together."""

    must: PatternTexts = Field((), description="Regular expressions, each of which a line must match.")
    never: PatternTexts = Field(
        (), description="Regular expressions that no line may match; one that does ends the job."
    )
    hosts: Literal["all", "any"] = Field(
        "all", description="Whose log must tell what is asked of logs: each host's, or any one's."
    )


class Loss(Model):
    """The loss, as the log tells it."""

    pattern: FigurePattern = Field(LOSS, description="Regular expression; its first group is the loss.")
    target: FiniteNumber | None = Field(None, description="What the last loss should be.")
    curve: Text | None = Field(
        None, min_length=1, description="File of a recorded curve (JSON or CSV, step to loss), relative to the suite."
    )
    tolerance: _Tolerance | None = Field(
        None, description="How far from `target` or `curve` is still in order: a distance, or a share such as 2%."
    )
    finite: bool = Field(True, description="A loss of nan or inf ends the job at once.")

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.target is not None or self.curve is not None) and self.tolerance is None:
            raise ValueError("`target` and `curve` need a `tolerance`: a distance (0.001) or a share (2%)")
        if self.tolerance is not None and self.target is None and self.curve is None:
            raise ValueError("`tolerance` is of a `target` or a `curve`, and there is neither")
        return self


class Steps(Model):
    """How the log tells that another training step is done."""

    pattern: FigurePattern = Field(STEP, description="Regular expression; its first group is the number of the step.")
    count: Amount | None = Field(None, description="How many steps the log must report.", examples=[">=15"])
    last: Amount | None = Field(None, description="What the highest number of a step must be.", examples=[">=40"])
    time: FigurePattern = Field(
        STEP_TIME_PATTERN, description="Regular expression; its first group is the time of a step."
    )
    unit: Literal["s", "ms", "us"] = Field("s", description="Unit of that time.")


class Stall(Model):
    """How long without a new step is too long."""

    factor: float = Field(100.0, gt=1, description="This many times the median step so far.")
    least_s: Duration = Field(300.0, alias="least", description="And never less than this.")
    after: int = Field(5, strict=True, ge=2, description="Not before this many steps: the first ones compile.")


_Stall = Annotated[
    Annotated[Stall, Tag("map")] | Annotated[Literal[False], Tag("plain")],
    Discriminator(lambda value: "map" if isinstance(value, dict | Stall) else "plain"),
]


class Files(Model):
    """Files that the job must leave behind."""

    match: Text = Field(min_length=1, description="Glob, relative to the work folder; ** is any folders.")
    count: Amount | None = Field(
        None, description="How many, of each host; default: at least one.", examples=[1, ">=1"]
    )
    size: Amount | None = Field(None, description="Size of each.", examples=[">=1Ki"])
    fresh: bool = Field(True, description="Each was written while the job ran.")
    valid: Literal["json", "xplane", "kineto"] | None = Field(None, description="Format that each must be read as.")
    steps: Amount | None = Field(None, description="Steps in each profile; default: at least 3.", examples=[">=3"])
    device: Text | None = Field(None, description="Type of device that each profile must have events of.")
    devices: Amount | None = Field(None, description="How many devices of that type.", examples=[4])
    window: tuple[_Whole, _Whole] | None = Field(None, description="First and last step that may be in a profile.")
    agrees: Fraction | None = Field(None, description="How far its steps may be from the log's; default: 5%.")

    PROFILE: ClassVar[tuple[str, ...]] = ("steps", "device", "devices", "window", "agrees")

    @property
    def profile(self) -> bool:
        return self.valid in ("xplane", "kineto")

    @model_validator(mode="after")
    def _together(self) -> Self:
        given = [name for name in self.PROFILE if getattr(self, name) is not None]
        if given and not self.profile:
            raise ValueError(f"`{given[0]}` is of a profile: say `valid: xplane` or `valid: kineto`")
        if self.devices is not None and self.device is None:
            raise ValueError("`devices` counts those of a `device`: say which, for example TPU or GPU")
        if self.window is not None and self.window[0] > self.window[1]:
            raise ValueError(f"`window` is its first step and its last: {list(self.window)} is the other way round")
        return self


class Metric(Model):
    """A figure of the job, from exactly one of `file`, `log` and `profile`."""

    file: Text | None = Field(None, min_length=1, description="Glob of JSON files, relative to the work folder.")
    key: Text | None = Field(None, min_length=1, description="Path in such a file: a.b.0.", examples=["step_time"])
    log: FigurePattern | None = Field(None, description="Regular expression; its first group is the figure.")
    profile: Text | None = Field(None, description="Entry of `files` whose profiles' step time it is.")
    unit: Text = Field("", description="For people, and for figures to be comparable.", examples=["s", "tokens/s"])
    better: Better | None = Field(None, description="Which way is better; without it, it gets no baseline.")
    min: FiniteNumber | None = Field(None, description="Less is a failure.")
    max: FiniteNumber | None = Field(None, description="More is a failure.")
    aggregate: Literal["median", "mean", "last", "min", "max"] | None = Field(
        None, description="One figure of several; default: median for log and profile, the slowest host's for file."
    )
    warmup: _Whole | None = Field(
        None, description="Values of the log to leave out at the beginning; default: found from the values."
    )
    required: bool = Field(True, description="That it is not there is a failure.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in ("file", "log", "profile") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a metric comes from exactly one of `file`, `log` and `profile`, not {len(given)}")
        if (self.file is None) != (self.key is None):
            raise ValueError("`file` and `key` go together: which file, and what of it")
        if self.warmup is not None and self.log is None:
            raise ValueError("`warmup` is of values of the `log`")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"`min` is {self.min:g}, more than `max`, {self.max:g}")
        return self


class TrainingTrial(TrialModel):
    kind: Literal["training"] = "training"
    command: Text = Field(min_length=1, description="Command line of the training job, for /bin/sh.")
    hosts: int = Field(1, strict=True, ge=1, le=1024, description="Processes of `command` that are started together.")
    workspace: Workspace | None = Field(
        None, description="Files that the job finds in its work folder; default: those of the runtime."
    )
    artifacts: Text | None = Field(
        None, min_length=1, description="Folder or fsspec address where `files` and `metrics` are; the job's is in it."
    )
    log: LogChecks = Field(LogChecks(), description="What the log must say, and what it never may.")
    loss: Loss | None = Field(None, description="The loss that the log tells: finite, near a target, like a curve.")
    steps: Steps = Field(Steps(), description="How the log reports steps, and how many it must.")
    stall: _Stall = Field(Stall(), description="No new step for too long; false: not judged.")
    files: dict[Text, Files] = Field({}, description="Files that the job must leave behind, each under a name.")
    metrics: dict[Text, Metric] = Field({}, description="Figures of the job, each under a name.")

    JUDGING: ClassVar[frozenset[str]] = frozenset({"artifacts", "log", "loss", "steps", "stall", "files", "metrics"})

    @field_validator("files", "metrics")
    @classmethod
    def _names(cls, entries: dict[str, Any]) -> dict[str, Any]:
        for name in entries:
            if not _NAMED.fullmatch(name):
                raise ValueError(f"{name!r} is no good name; use letters, digits and . _ + -")
        return entries

    @model_validator(mode="after")
    def _profiles(self) -> Self:
        for name, metric in self.metrics.items():
            if metric.profile is not None:
                entry = self.files.get(metric.profile)
                if entry is None or not entry.profile:
                    raise ValueError(
                        f"metric {name!r} is of the profile {metric.profile!r}, and `files` has no entry of that name "
                        "with `valid: xplane` or `valid: kineto`"
                    )
        return self

    def workspace_of(self, runtime: Runtime | None) -> Workspace | None:
        return self.workspace or (runtime.workspace if runtime else None)

    def declared_figures(self) -> dict[str, DeclaredFigure]:
        own = {
            "step_time": DeclaredFigure("s", "lower"),
            "loss": DeclaredFigure(""),
            "seconds": DeclaredFigure("s"),
            "peak_memory": DeclaredFigure("B"),
        }
        return own | {name: DeclaredFigure(metric.unit, metric.better) for name, metric in self.metrics.items()}

    def needed_files(self) -> tuple[tuple[tuple[str | int, ...], str], ...]:
        return ((("loss", "curve"), self.loss.curve),) if self.loss and self.loss.curve else ()

    def step_names(self, runtime: Runtime | None) -> tuple[str, ...]:
        workspace = self.workspace_of(runtime)
        cloned = ["workspace"] if workspace and workspace.git else []
        figures = ["figures"] if self.baseline else []
        return ("job", *cloned, "train", *(f"files {name}" for name in self.files), *figures)
