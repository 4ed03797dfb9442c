"""What users write of a command: what it must print and leave behind, and which metrics are read from that."""

import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

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
from seatrial.suite.models import Model
from seatrial.suite.patterns import problem
from seatrial.suite.placeholders import Fill
from seatrial.suite.values import Duration, Need, Requirement, Text
from seatrial.suite.yaml.problem import nearest

_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_NAMED = re.compile(r"[A-Za-z0-9_][\w.+-]*")


def _pattern(text: str, *, group: bool = False) -> str:
    if wrong := problem(text, group):
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
# A pattern whose first group is a number.
MetricPattern = Annotated[Text, AfterValidator(partial(_pattern, group=True)), Fill.PATTERN]
_ONE_OR_MORE = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
_TEXTS_SCHEMA = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
Texts = Annotated[tuple[Text, ...], _ONE_OR_MORE, _TEXTS_SCHEMA]
PatternTexts = Annotated[tuple[PatternText, ...], _ONE_OR_MORE, _TEXTS_SCHEMA, Fill.PATTERN]
_FRACTION = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
_PERCENT = {"type": "string", "pattern": r"^\d+(\.\d+)?\s*%$"}
_SHARE_SCHEMA = WithJsonSchema({"anyOf": [_FRACTION, _PERCENT, {"const": False}]})
_Share = Annotated[float | None, BeforeValidator(_share), _SHARE_SCHEMA]
Tolerance = Annotated[
    str | float, BeforeValidator(_tolerance), WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, _PERCENT]})
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


class Read(Model):
    """Metrics that a reader finds in what the command prints, or in a file that it writes."""

    reader: Text = Field(min_length=1, description="Name of a reader: json, kineto, xplane, or an installed one.")
    file: Text | None = Field(
        None, min_length=1, description="Glob of the file, relative to the work folder; default: what is printed."
    )
    options: dict[Text, str | bool | int | float] = Field({}, description="For the reader.")


_Read = Annotated[
    Annotated[Text, Tag("plain")] | Annotated[Read, Tag("map")],
    Discriminator(lambda value: "map" if isinstance(value, dict | Read) else "plain"),
]
_BOUND = re.compile(r"(<=|>=|<|>)?\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\d\s<>=][^\s<>=]*)?")


class KnownReader(Protocol):
    """A reader, as far as a suite is checked against it."""

    @property
    def metrics(self) -> Mapping[str, tuple[str, Better | None]] | None:
        """Unit and direction of each metric that it gives; None: that depends on what it reads."""


def parse_limit(text: str) -> tuple[str, float, str]:
    """Operator, number and unit of `>=48 GB/s`; the operator and the unit may be empty."""
    match = _BOUND.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a bound; write for example <=30s or >=48 GB/s")
    return match[1] or "", float(match[2]), match[3] or ""


class CommandChecks(Model):
    """What a command must print and leave behind, and which metrics are read of that: the same for every kind."""

    # Measured of every command, without being asked for.
    OWN_METRICS: ClassVar[tuple[str, ...]] = ("seconds", "peak_memory")

    log: LogChecks = Field(LogChecks(), description="What the log must say, and what it never may.")
    files: dict[Text, Files] = Field({}, description="Files that the job must leave behind, each under a name.")
    metrics: dict[Text, Metric] = Field({}, description="Metrics of the job, each under a name.")
    read: _Read | None = Field(
        None, description="Reader of what the command prints, or of a file.", examples=["json", {"reader": "json"}]
    )
    bounds: dict[Text, Annotated[str, BeforeValidator(str)]] = Field(
        {}, description="What metrics must be.", examples=[{"seconds": "<=30s", "bandwidth": ">=48 GB/s"}]
    )

    @field_validator("files", "metrics")
    @classmethod
    def _names(cls, entries: dict[str, Any]) -> dict[str, Any]:
        for name in entries:
            if not _NAMED.fullmatch(name):
                raise ValueError(f"{name!r} is no good name; use letters, digits and . _ + -")
        return entries

    @field_validator("bounds")
    @classmethod
    def _bounds(cls, bounds: dict[str, str]) -> dict[str, str]:
        for text in bounds.values():
            parse_limit(text)
        return bounds

    @property
    def reading(self) -> Read | None:
        return Read(reader=self.read) if isinstance(self.read, str) else self.read

    def check_names(self, readers: Mapping[str, KnownReader]) -> Iterator[tuple[tuple[str, ...], str]]:
        """What is wrong with the names of readers and of bounded metrics, each with its place."""
        reading = self.reading
        if reading is not None and reading.reader not in readers:
            place = ("read",) if isinstance(self.read, str) else ("read", "reader")
            yield place, f"unknown reader {reading.reader!r}{nearest(reading.reader, readers)}"
            return
        read = readers[reading.reader].metrics if reading is not None else {}
        known = [*self.OWN_METRICS, *self.metrics, *(read or ())]
        for name in self.bounds:
            if read is not None and name not in known:
                yield ("bounds", name), f"unknown metric {name!r}{nearest(name, known)}"

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


class Command(CommandChecks):
    """A command line, and what it should do."""

    command: Text = Field(min_length=1, description="For /bin/sh.")
    name: Text | None = Field(None, description="Short name; default: the command itself.")
    exit: Annotated[int, Field(strict=True, ge=0, le=255)] | None = Field(0, description="Exit code; null: any.")
    contains: Texts = Field((), description="Texts that it must print.")
    matches: Texts = Field((), description="Regular expressions that a part of what it prints must match.")
    never: Texts = Field((), description="Texts that it must not print.")
    timeout_s: Duration | None = Field(None, alias="timeout", description="Limit for this command.")
    baseline: Text | None = Field(
        None, min_length=1, description="File of bounds that its metrics are judged by, relative to the suite."
    )

    OWN_METRICS: ClassVar[tuple[str, ...]] = ("seconds", "cpu", "peak_memory")

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
    def output_file(self) -> str:
        """Where the job keeps what the command prints, for its reader."""
        plain = re.sub(r"[^\w.+-]+", "-", self.step)[:60]
        return f"output/{plain}-{sha256(self.step.encode()).hexdigest()[:6]}.txt"

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
