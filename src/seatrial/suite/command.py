import math
import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from seatrial.job import Better
from seatrial.suite.models import Model
from seatrial.suite.patterns import problem
from seatrial.suite.placeholders import Fill
from seatrial.suite.values import Duration, Need, Requirement, Text

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


def _share(value: Any) -> float | None:
    """`5%` or 0.05; false: None."""
    if value is None or value is False:
        return None
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
MetricPattern = Annotated[Text, AfterValidator(_reading), Fill.PATTERN]  # a pattern whose first group is a number
PatternTexts = Annotated[
    tuple[PatternText, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
    Fill.PATTERN,
]
_PERCENT = {"type": "string", "pattern": r"^\d+(\.\d+)?\s*%$"}
_Share = Annotated[
    float | None,
    BeforeValidator(_share),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, _PERCENT, {"const": False}]}
    ),
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
    agrees: _Share = Field(
        None, description="How far its steps may be from the log's; default: not compared.", examples=["5%", False]
    )

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
    """A metric of the job, from exactly one of `file`, `log` and `profile`."""

    file: Text | None = Field(None, min_length=1, description="Glob of JSON files, relative to the work folder.")
    key: Text | None = Field(None, min_length=1, description="Path in such a file: a.b.0.", examples=["step_time"])
    log: Annotated[MetricPattern | None, Fill.PATTERN] = Field(
        None, description="Regular expression; its first group is the metric."
    )
    profile: Text | None = Field(None, description="Entry of `files` whose profiles' step time it is.")
    unit: Text = Field("", description="For people, and for metrics to be comparable.", examples=["s", "tokens/s"])
    better: Better | None = Field(None, description="Which way is better; without it, it gets no baseline.")
    min: FiniteNumber | None = Field(None, description="Less is a failure.")
    max: FiniteNumber | None = Field(None, description="More is a failure.")
    aggregate: Literal["median", "mean", "last", "min", "max"] | None = Field(
        None, description="One metric of several; default: median for log and profile, the slowest host's for file."
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


class CommandChecks(Model):
    """What a command must print and leave behind, and which metrics are read of that: the same for every kind."""

    log: LogChecks = Field(LogChecks(), description="What the log must say, and what it never may.")
    files: dict[Text, Files] = Field({}, description="Files that the job must leave behind, each under a name.")
    metrics: dict[Text, Metric] = Field({}, description="Metrics of the job, each under a name.")

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


_TEXTS_SCHEMA = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
Texts = Annotated[
    tuple[Text, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    WithJsonSchema(_TEXTS_SCHEMA),
]


class Command(CommandChecks):
    """A command line, and what it should do."""

    command: Text = Field(min_length=1, description="For /bin/sh.")
    name: Text | None = Field(None, description="Short name; default: the command itself.")
    exit: Annotated[int, Field(strict=True, ge=0, le=255)] | None = Field(0, description="Exit code; null: any.")
    contains: Texts = Field((), description="Texts that it must print.")
    matches: Texts = Field((), description="Regular expressions that a part of what it prints must match.")
    never: Texts = Field((), description="Texts that it must not print.")
    timeout_s: Duration | None = Field(None, alias="timeout", description="Limit for this command.")

    @field_validator("matches")
    @classmethod
    def _patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return patterns

    @property
    def step(self) -> str:
        return f"run {self.name or self.command.strip()}"

    @property
    def reads(self) -> str:
        """The step that reads its files, when it is over."""
        return f"{self.step} files"

    @property
    def step_names(self) -> list[str]:
        return [self.step, *(f"{self.reads} {name}" for name in self.files)]

    @model_validator(mode="after")
    def _no_profile(self) -> Self:
        for name, entry in self.files.items():
            given = [rule for rule in Files.PROFILE if getattr(entry, rule) not in (None, False)]
            if given:
                raise ValueError(f"`{given[0]}` of the profile {name!r} is judged in a trial of kind training")
        return self
