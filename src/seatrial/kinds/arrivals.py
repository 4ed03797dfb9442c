"""When the requests or workloads of a load begin: what users write, and the times that follow from it."""

import math
import random
import re
from collections.abc import Iterator
from itertools import count, islice, takewhile
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import msgspec
from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from seatrial.job import Unreadable, read_regular
from seatrial.suite import Duration, Model, SuiteError, Text
from seatrial.suite.yaml.problem import Problem, SourceMark


class Arrivals(msgspec.Struct, frozen=True, omit_defaults=True):
    """When the things of a load begin, whatever became of those before them: an open loop, or a closed one of
    workloads (in_flight, waves). Rates are per second."""

    shape: str  # rate, poisson, burst, ramp, steps, trace, in_flight, waves
    rate: float = 0.0  # of a ramp the first one
    to_rate: float = 0.0  # of a ramp the last one
    burst: int = 0  # so many at once, or in flight
    every_s: float = 0.0  # between bursts, or waves; of a ramp, how long it takes; of steps, how long each takes
    rates: tuple[float, ...] = ()  # of steps
    times: tuple[float, ...] = ()  # of a trace

    @property
    def peak(self) -> float | None:
        """The highest rate that is offered; None where that is no rate: all at once, or as fast as it goes."""
        return max((self.rate, self.to_rate, *self.rates)) or None


_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*(s|m|h)")


def parse_rate(value: Any) -> float:
    """A second, of `4`, `4/s`, `90/m`."""
    match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    found = float(match[1]) / {"s": 1, "m": 60, "h": 3600}[match[2]] if match else value
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found <= 1e6:
        raise ValueError(f"{value!r} is no rate; write for example 4/s or 90/m")
    return float(found)


Rate = Annotated[
    float,
    BeforeValidator(parse_rate),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}], "examples": ["4/s"]}),
]


class Ramp(Model):
    first: Rate = Field(alias="from", description="Rate at the beginning.")
    last: Rate = Field(alias="to", description="Rate after `over`, and from then on.")
    over_s: Duration = Field(alias="over", description="How long it takes to get there.")


class ArrivalsModel(Model):
    """When things begin: exactly one of `SHAPES`."""

    SHAPES: ClassVar[tuple[str, ...]] = ("rate", "poisson", "burst", "ramp", "steps", "trace")

    rate: Rate | None = Field(None, description="Evenly.")
    poisson: Rate | None = Field(None, description="By chance, with this mean rate.")
    burst: Annotated[int, Field(strict=True, ge=1)] | None = Field(None, description="So many at once.")
    ramp: Ramp | None = Field(None, description="From one rate to another.")
    steps: Annotated[tuple[Rate, ...], Field(min_length=1)] | None = Field(
        None, description="Rates one after the other, each for as long as `every` says."
    )
    every_s: Duration | None = Field(None, alias="every", description="From one burst, or step, to the next.")
    trace: Text | None = Field(
        None,
        description="File with a time in seconds in each line, relative to the suite; a comma ends what is read.",
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in self.SHAPES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"arrivals are exactly one of {', '.join(f'`{name}`' for name in self.SHAPES)}")
        if self.every_s is not None and self.burst is None and self.steps is None:
            raise ValueError("`every` is of a `burst`, or of `steps`")
        if self.steps is not None and self.every_s is None:
            raise ValueError("`steps` need to know how long each takes: `every: 60s`")
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
    """When things begin, in seconds from the first: the first field of each line; a first line of words is a head."""

    def problem(message: str, line: int = 1) -> SuiteError:
        return SuiteError([Problem(message, SourceMark(str(path), line, 1))])

    times: list[float] = []
    try:
        lines = read_regular(path, follow=True).decode("utf-8").splitlines()
    except (OSError, Unreadable, UnicodeDecodeError) as error:
        raise problem(f"the trace cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        field = line.partition(",")[0].strip()
        try:
            times.append(float(field))
        except ValueError:
            if field and number > 1:
                raise problem(f"{field!r} is no time; each line begins with seconds", number) from None
    if not times:
        raise problem("the trace has no times")
    return [at_s - min(times) for at_s in sorted(times)]


_MOST = 5_000_000


def offsets(arrivals: Arrivals, most: int | None, seconds: float | None = None, seed: int = 0) -> list[float]:
    """The times of an open loop, in seconds from its start and in order: at most so many, none after `seconds`. The
    same seed gives the same times. Raises ValueError when there are none."""
    times = _times(arrivals, seed)
    if seconds is not None:
        limit_s = seconds
        times = takewhile(lambda at_s: at_s < limit_s, times)
    found = list(islice(times, min(most or _MOST, _MOST)))
    if not found:
        raise ValueError("the load is empty: none of its arrivals is before its end")
    return found


def _times(arrivals: Arrivals, seed: int) -> Iterator[float]:
    if arrivals.shape == "trace":
        yield from arrivals.times
    elif arrivals.shape == "rate":
        yield from (number / arrivals.rate for number in count())
    elif arrivals.shape == "burst":
        yield from (number // arrivals.burst * arrivals.every_s for number in count())
    elif arrivals.shape == "poisson":
        chance, at_s = random.Random(seed), 0.0
        while True:
            at_s += chance.expovariate(arrivals.rate)
            yield at_s
    elif arrivals.shape == "ramp":
        yield from (_ramp_s(number, arrivals) for number in count())
    elif arrivals.shape == "steps":
        yield from _steps(arrivals.rates, arrivals.every_s)
    else:
        raise ValueError(f"this Seatrial has no arrivals {arrivals.shape!r}")


def _ramp_s(number: int, arrivals: Arrivals) -> float:
    """When so many have come: the rate goes from one to the other in `every_s`, and stays there."""
    first, last, over_s = arrivals.rate, arrivals.to_rate, arrivals.every_s
    within = (first + last) / 2 * over_s
    if number >= within:
        return over_s + (number - within) / last
    growth = (last - first) / over_s
    if growth == 0:
        return number / first
    return (math.sqrt(first * first + 2 * growth * number) - first) / growth


def _steps(rates: tuple[float, ...], over_s: float) -> Iterator[float]:
    """A step begins where the one before ends, whatever is left of its last gap: the offered rate is exact."""
    for step, rate in enumerate(rates):
        end_s = math.inf if step == len(rates) - 1 else (step + 1) * over_s - 1e-9
        for number in count():
            at_s = step * over_s + number / rate
            if at_s >= end_s:
                break
            yield at_s
