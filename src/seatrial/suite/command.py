"""Models of a command: the output and files that it must produce, and the metrics read from them."""

import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from seatrial.job import Better
from seatrial.suite.models import PLAIN_OR_MAP, Model
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
    """Parses `5%` or 0.05; false is None."""
    if value is None or value is False:
        return None
    match = _SHARE.fullmatch(value.strip()) if isinstance(value, str) else None
    share = float(match[1]) / 100 if match else value
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise ValueError(f"invalid share {value!r}; use for example 5%")
    return float(share)


def _tolerance(value: Any) -> str | float:
    """Parses a distance (0.001) or a share of the expected value (2%)."""
    if isinstance(value, str) and _SHARE.fullmatch(value.strip()):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"invalid tolerance {value!r}; use a distance (0.001) or a share (2%)")
    return float(value)


def _amount(requirement: Requirement) -> Requirement:
    if any(isinstance(operand, str) for operand in requirement.operands):
        raise ValueError(f'invalid amount {requirement.text!r}; use a number, ">=15" or "<2Gi"')
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
Share = Annotated[float | None, BeforeValidator(_share), _SHARE_SCHEMA]
Tolerance = Annotated[
    str | float, BeforeValidator(_tolerance), WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, _PERCENT]})
]
Amount = Annotated[Need, AfterValidator(_amount)]
FiniteNumber = Annotated[float, Field(allow_inf_nan=False)]
_Whole = Annotated[int, Field(strict=True, ge=0)]


class LogChecks(Model):
    """Checks of the job's output: all hosts, stdout and stderr together."""

    must: PatternTexts = Field((), description="Regular expressions; each must match a line.")
    never: PatternTexts = Field((), description="Regular expressions that must match no line; a match stops the job.")
    hosts: Literal["all", "any"] = Field(
        "all", description="Whether every host's log must meet the checks, or any one."
    )


class Files(Model):
    """Files that the job must write."""

    match: Text = Field(min_length=1, description="Glob in the work folder, $SEATRIAL_FILES or `artifacts`.")
    count: Amount | None = Field(None, description="Number of files; default: at least one.", examples=[1, ">=1"])
    size: Amount | None = Field(None, description="Size of each file.", examples=[">=1Ki"])
    fresh: bool = Field(True, description="Each file must be written while the job runs.")
    valid: Literal["json", "xplane", "kineto"] | None = Field(None, description="Format of each file.")
    steps: Amount | None = Field(None, description="Steps in each profile; default: at least 3.", examples=[">=3"])
    device: Text | None = Field(None, description="Device type that each profile must have events of.")
    devices: Amount | None = Field(None, description="Number of devices of that type.", examples=[4])
    window: tuple[_Whole, _Whole] | None = Field(None, description="First and last step allowed in a profile.")
    agrees: Share = Field(
        None,
        description="Maximum difference between step times of profile and log; default: not compared.",
        examples=["5%", False],
    )

    PROFILE: ClassVar[tuple[str, ...]] = ("steps", "device", "devices", "window", "agrees")

    @property
    def profile(self) -> bool:
        return self.valid in ("xplane", "kineto")

    @model_validator(mode="after")
    def _together(self) -> Self:
        given = [name for name in self.PROFILE if getattr(self, name) is not None]
        if given and not self.profile:
            raise ValueError(f"`{given[0]}` needs a profile: `valid: xplane` or `valid: kineto`")
        if self.devices is not None and self.device is None:
            raise ValueError("`devices` needs `device`, for example TPU or GPU")
        if self.window is not None and self.window[0] > self.window[1]:
            raise ValueError(f"invalid `window` {list(self.window)}: the first step is after the last")
        return self


class Metric(Model):
    """A metric of the job, from exactly one of `file`, `log` and `profile`."""

    file: Text | None = Field(None, min_length=1, description="Glob of JSON files, relative to the work folder.")
    key: Text | None = Field(None, min_length=1, description="Path in the file: a.b.0.", examples=["step_time"])
    log: Annotated[MetricPattern | None, Fill.PATTERN] = Field(
        None, description="Regular expression; its first group is the value."
    )
    profile: Text | None = Field(None, description="Entry of `files` with profiles; the metric is their step time.")
    unit: Text = Field("", description="Unit. Values in other units are converted.", examples=["s", "tokens/s"])
    better: Better | None = Field(None, description="Better direction; a metric without it gets no baseline.")
    min: FiniteNumber | None = Field(None, description="Minimum; a lower value fails.")
    max: FiniteNumber | None = Field(None, description="Maximum; a higher value fails.")
    aggregate: Literal["median", "mean", "last", "min", "max"] | None = Field(
        None, description="How to combine values; default: median for log and profile, the worst of all hosts for file."
    )
    warmup: _Whole | None = Field(
        None, description="Log values to skip at the start; default: detected from the values."
    )
    required: bool = Field(True, description="Fail if the metric is missing.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in ("file", "log", "profile") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"set exactly one of `file`, `log`, `profile`; got {len(given)}")
        if (self.file is None) != (self.key is None):
            raise ValueError("set both `file` and `key`, or neither")
        if self.warmup is not None and self.log is None:
            raise ValueError("`warmup` applies only to log metrics")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"`min` {self.min:g} is more than `max` {self.max:g}")
        return self


class Read(Model):
    """Metrics that a reader finds in the command's output or in a file that it writes."""

    reader: Text = Field(min_length=1, description="Name of a reader: json, kineto, xplane, or an installed one.")
    file: Text | None = Field(
        None, min_length=1, description="Glob of the file, relative to the work folder; default: the output."
    )
    options: dict[Text, str | bool | int | float] = Field({}, description="Options of the reader.")


_Read = Annotated[Annotated[Text, Tag("plain")] | Annotated[Read, Tag("map")], PLAIN_OR_MAP]
_BOUND = re.compile(r"(<=|>=|<|>)?\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\d\s<>=][^\s<>=]*)?")


class KnownReader(Protocol):
    """A reader, as far as suite checks need it."""

    @property
    def metrics(self) -> Mapping[str, tuple[str, Better | None]] | None:
        """Unit and direction of each metric; None if they depend on the input."""


def parse_limit(text: str) -> tuple[str, float, str]:
    """Parses `>=48 GB/s` into operator, number and unit; operator and unit may be empty."""
    match = _BOUND.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"invalid bound {text!r}; use for example <=30s or >=48 GB/s")
    return match[1] or "", float(match[2]), match[3] or ""


class CommandChecks(Model):
    """Checks of a command's output and files, and the metrics read from them; the same for every kind."""

    # Always measured.
    OWN_METRICS: ClassVar[tuple[str, ...]] = ("seconds", "peak_memory")

    log: LogChecks = Field(LogChecks(), description="Required and forbidden log lines.")
    files: dict[Text, Files] = Field({}, description="Files the job must write, by name.")
    metrics: dict[Text, Metric] = Field({}, description="Metrics of the job, by name.")
    read: _Read | None = Field(
        None,
        description="Reader that turns the command's output, or a file, into metrics.",
        examples=["json", {"reader": "json"}],
    )
    bounds: dict[Text, Annotated[str, BeforeValidator(str)]] = Field(
        {}, description="Bounds of metrics.", examples=[{"seconds": "<=30s", "bandwidth": ">=48 GB/s"}]
    )

    @field_validator("files", "metrics")
    @classmethod
    def _names(cls, entries: dict[str, Any]) -> dict[str, Any]:
        for name in entries:
            if not _NAMED.fullmatch(name):
                raise ValueError(f"invalid name {name!r}; use letters, digits and . _ + -")
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
        """Errors in the names of readers and of metrics with bounds, each with its path."""
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
                    what = f"metric {name!r} needs an entry {metric.profile!r} in `files`"
                    raise ValueError(f"{what} with `valid: xplane` or `valid: kineto`")
        return self


class Command(CommandChecks):
    """A command line and its checks."""

    command: Text = Field(min_length=1, description="Command line for /bin/sh.")
    name: Text | None = Field(None, description="Short name; default: the command itself.")
    exit: Annotated[int, Field(strict=True, ge=0, le=255)] | None = Field(0, description="Exit code; null for any.")
    contains: Texts = Field((), description="Texts the output must contain.")
    matches: Texts = Field((), description="Regular expressions that must match a part of the output.")
    never: Texts = Field((), description="Texts the output must not contain.")
    timeout_s: Duration | None = Field(None, alias="timeout", description="Limit for this command.")
    baseline: Text | None = Field(
        None, min_length=1, description="Baseline file with the bounds of its metrics, relative to the suite."
    )

    OWN_METRICS: ClassVar[tuple[str, ...]] = ("seconds", "cpu", "peak_memory")

    @field_validator("matches")
    @classmethod
    def _patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"invalid regular expression {pattern!r}: {error}") from None
        return patterns

    @property
    def step(self) -> str:
        return f"run {self.name or self.command.strip()}"

    @property
    def reads(self) -> str:
        """Name of the step that reads its files after it ended."""
        return f"{self.step} files"

    @property
    def output_file(self) -> str:
        """File in which the job keeps the command's output, for its reader."""
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
                raise ValueError(f"`{given[0]}` of the profile {name!r} applies only to trials of kind training")
        return self
