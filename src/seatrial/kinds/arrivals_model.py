"""Arrivals as a suite writes them: rates, shapes, and traces in files."""

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from seatrial.job import Unreadable, read_regular
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


class Ramp(Model):
    first: Rate = Field(alias="from", description="Rate at the start.")
    last: Rate = Field(alias="to", description="Rate at the end of `over` and afterwards.")
    over_s: Duration = Field(alias="over", description="Duration of the change.")


class ArrivalsModel(Model):
    """When requests or workloads begin: exactly one of `SHAPES`."""

    SHAPES: ClassVar[tuple[str, ...]] = ("rate", "poisson", "burst", "ramp", "steps", "trace")

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
        description="File, relative to the suite, with a time in seconds on each line; text after a comma is ignored.",
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
        if self.rate is not None:
            return Arrivals("rate", self.rate)
        if self.poisson is not None:
            return Arrivals("poisson", self.poisson)
        if self.burst is not None:
            return Arrivals("burst", burst=self.burst, every_s=self.every_s or 0.0)
        if self.ramp is not None:
            return Arrivals("ramp", self.ramp.first, self.ramp.last, every_s=self.ramp.over_s)
        if self.steps is not None:
            return Arrivals("steps", rates=self.steps, every_s=self.every_s or 0.0)
        return Arrivals("trace", times=times)


def read_trace(path: Path) -> list[float]:
    """Reads the first field of each line, in seconds; returns the times relative to the earliest. The first line may
    be a header. Raises SuiteError."""

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
            times.append(float(field))
        except ValueError:
            if field and number > 1:
                raise problem(f"invalid time {field!r}; each line must begin with seconds", number) from None
    if not times:
        raise problem("the trace contains no times")
    return [at_s - min(times) for at_s in sorted(times)]
