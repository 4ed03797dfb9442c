"""Arrivals as a suite writes them: rates, shapes, and traces in files."""

import math
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import msgspec
from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from seatrial.job import Unreadable, decode, read_regular
from seatrial.kinds.arrivals import Arrivals
from seatrial.suite import Duration, Model, SuiteError, Text
from seatrial.suite.yaml.problem import Problem, SourceMark

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*(s|m|h)")


def parse_rate(value: Any) -> float:
    """Parses `4`, `4/s` or `90/m` to a rate per second. Raises ValueError."""
    match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    found = float(match[1]) / {"s": 1, "m": 60, "h": 3600}[match[2]] if match else value
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found <= 1e6:
        raise ValueError(f"invalid rate {value!r}; use for example 4/s or 90/m")
    return float(found)


Rate = Annotated[
    float,
    BeforeValidator(parse_rate),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}], "examples": ["4/s"]}),
]


class _MooncakeRow(msgspec.Struct):
    timestamp: float  # milliseconds


class Ramp(Model):
    first: Rate = Field(alias="from", description="Rate at the start.")
    last: Rate = Field(alias="to", description="Rate at the end of `over` and afterwards.")
    over_s: Duration = Field(alias="over", description="Duration of the change.")


class ArrivalsModel(Model):
    """When requests or workloads begin: exactly one of `SHAPES`."""

    SHAPES: ClassVar[tuple[str, ...]] = ("rate", "poisson", "burst", "ramp", "steps", "trace", "in_flight")

    rate: Rate | None = Field(None, description="Constant rate, evenly spaced.")
    poisson: Rate | None = Field(None, description="Random (Poisson) arrivals with this mean rate.")
    burst: Annotated[int, Field(strict=True, ge=1)] | None = Field(None, description="This many at once.")
    ramp: Ramp | None = Field(None, description="Gradual change from one rate to another.")
    steps: Annotated[tuple[Rate, ...], Field(min_length=1)] | None = Field(
        None, description="Rates in sequence, each for the duration `every`."
    )
    every_s: Duration | None = Field(None, alias="every", description="Interval of bursts, or duration of each step.")
    trace: Text | None = Field(
        None,
        description="File, relative to the suite: a Mooncake trace, or a time in seconds on each line; text after a "
        "comma is ignored.",
    )

    in_flight: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = Field(
        None, description="Closed loop: keep this many unfinished; the next is sent when one is done."
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in self.SHAPES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"set exactly one of {', '.join(f'`{name}`' for name in self.SHAPES)}")
        if self.every_s is not None and self.burst is None and self.steps is None:
            raise ValueError("`every` applies only to `burst` and `steps`")
        if self.steps is not None and self.every_s is None:
            raise ValueError("`steps` needs `every`, the duration of each step, such as `every: 60s`")
        return self

    def work(self, times: tuple[float, ...]) -> Arrivals:
        (shape,) = (name for name in self.SHAPES if getattr(self, name) is not None)
        value, every_s = getattr(self, shape), self.every_s or 0.0
        if isinstance(value, Ramp):
            return Arrivals(shape, value.first, value.last, every_s=value.over_s)
        if isinstance(value, int):
            return Arrivals(shape, burst=value, every_s=every_s)
        if isinstance(value, float):
            return Arrivals(shape, value)
        return Arrivals(shape, rates=self.steps or (), every_s=every_s, times=times)


def read_trace(path: Path) -> list[float]:
    """Reads the first field of each line, in seconds, or the `timestamp` of a Mooncake trace. The times returned are
    relative to the earliest. The first line may be a header. Raises SuiteError."""

    def problem(message: str, line: int = 1) -> SuiteError:
        return SuiteError([Problem(message, SourceMark(str(path), line, 1))])

    times: list[float] = []
    try:
        lines = read_regular(path, follow=True).decode("utf-8").splitlines()
    except (OSError, Unreadable, UnicodeDecodeError) as error:
        raise problem(f"cannot read the trace: {error}") from error
    for number, line in enumerate(lines, 1):
        field = line.partition(",")[0].strip()
        try:
            at_s = decode(line, _MooncakeRow).timestamp / 1000 if line.startswith("{") else float(field)
            if not math.isfinite(at_s):
                raise ValueError
            times.append(at_s)
        except (ValueError, Unreadable):
            if field and number > 1:
                raise problem(
                    f"invalid time {field!r}; each line must begin with seconds or be JSON with `timestamp`", number
                ) from None
    if not times:
        raise problem("the trace contains no times")
    return [at_s - min(times) for at_s in sorted(times)]
