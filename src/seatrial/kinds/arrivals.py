"""When the requests or workloads of a load begin. Imported by load generators, which start without pydantic."""

import math
import random
from collections.abc import Iterator
from itertools import count, islice, repeat, takewhile

import msgspec


class Arrivals(msgspec.Struct, frozen=True, omit_defaults=True):
    """The arrivals of a load: an open loop, which does not wait for earlier ones, or a closed loop of workloads
    (in_flight, waves). Rates are per second."""

    shape: str  # rate, poisson, burst, ramp, steps, trace, in_flight, waves
    rate: float = 0.0  # for a ramp, the first rate
    to_rate: float = 0.0  # for a ramp, the last rate
    burst: int = 0  # number at once, or in flight
    # interval of bursts or waves; duration of a ramp, or of each step; Poisson arrivals with exactly their mean in each
    every_s: float = 0.0
    rates: tuple[float, ...] = ()  # of steps
    times: tuple[float, ...] = ()  # of a trace

    @property
    def peak(self) -> float | None:
        """The highest offered rate; None if there is none (all at once, or as fast as possible)."""
        return max((self.rate, self.to_rate, *self.rates)) or None


_MOST = 5_000_000


def offsets(arrivals: Arrivals, most: int | None, seconds: float | None = None, seed: int = 0) -> list[float]:
    """The times of an open loop in seconds from its start, sorted: at most `most`, all before `seconds`. The same
    seed gives the same times. Raises ValueError if there are none."""
    times = _times(arrivals, seed)
    if seconds is not None:
        limit_s = seconds
        times = takewhile(lambda at_s: at_s < limit_s, times)
    found = list(islice(times, min(most or _MOST, _MOST)))
    if not found:
        raise ValueError("the load is empty: no arrival before its end")
    return found


def _times(arrivals: Arrivals, seed: int) -> Iterator[float]:
    if arrivals.shape == "trace":
        yield from arrivals.times
    elif arrivals.shape == "in_flight":
        yield from repeat(0.0)
    elif arrivals.shape == "rate":
        yield from (number / arrivals.rate for number in count())
    elif arrivals.shape == "burst":
        yield from (number // arrivals.burst * arrivals.every_s for number in count())
    elif arrivals.shape == "poisson" and arrivals.every_s:
        chance, per = random.Random(seed), arrivals.rate * arrivals.every_s
        for part in count():
            number = round(per * (part + 1)) - round(per * part)
            yield from sorted((part + chance.random()) * arrivals.every_s for _ in range(number))
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
        raise ValueError(f"unknown arrivals {arrivals.shape!r}")


def _ramp_s(number: int, arrivals: Arrivals) -> float:
    """The time of the arrival with this number: the rate changes linearly during `every_s`, then stays."""
    first, last, over_s = arrivals.rate, arrivals.to_rate, arrivals.every_s
    within = (first + last) / 2 * over_s
    if number >= within:
        return over_s + (number - within) / last
    growth = (last - first) / over_s
    if growth == 0:
        return number / first
    return (math.sqrt(first * first + 2 * growth * number) - first) / growth


def _steps(rates: tuple[float, ...], over_s: float) -> Iterator[float]:
    """Each step starts exactly when the one before ends, so that the offered rate is exact."""
    for step, rate in enumerate(rates):
        end_s = math.inf if step == len(rates) - 1 else (step + 1) * over_s - 1e-9
        for number in count():
            at_s = step * over_s + number / rate
            if at_s >= end_s:
                break
            yield at_s
