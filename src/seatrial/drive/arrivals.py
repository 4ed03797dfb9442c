"""When each thing of a load is to begin, in seconds from its start: the times of an open loop. Pure, by a seed.

A generator that waits for answers slows down with what it measures, and then measures too little."""

import math
import random
from collections.abc import Iterator
from itertools import count, islice, takewhile

from seatrial.drive.driver import DriverError
from seatrial.job.load import Arrivals

_MOST = 5_000_000


def offsets(arrivals: Arrivals, most: int | None, seconds: float | None = None, seed: int = 0) -> list[float]:
    """In order: at most so many, and none that would begin after `seconds`."""
    times = _times(arrivals, seed)
    if seconds is not None:
        limit_s = seconds
        times = takewhile(lambda at_s: at_s < limit_s, times)
    found = list(islice(times, min(most or _MOST, _MOST)))
    if not found:
        raise DriverError("the load is empty: none of its arrivals is before its end")
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
        raise DriverError(f"this Seatrial has no arrivals {arrivals.shape!r}")


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
