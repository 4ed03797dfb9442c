"""When things are sent, whatever becomes of those before them: the times of an open loop, in seconds from its start.

A generator that waits for answers slows down with what it measures, and then measures too little."""

import math
import random
from collections.abc import Iterator
from itertools import islice

import msgspec


class Arrivals(msgspec.Struct, frozen=True, omit_defaults=True):
    """Exactly one of its forms is given; rates are per second."""

    rate: float | None = None  # evenly
    poisson: float | None = None  # at random, so many a second on average
    burst: bool = False  # all at once
    waves: int | None = None  # so many at once, again every `every_s`
    every_s: float = 1.0
    ramp: tuple[float, float] | None = None  # from one rate to another, over `over_s`; then on at the last
    steps: tuple[float, ...] = ()  # rates, one after the other, each for `over_s`; then on at the last
    over_s: float = 60.0
    trace: tuple[float, ...] = ()  # the times themselves


def offsets(arrivals: Arrivals, count: int, seed: int = 0) -> list[float]:
    """`count` times, in order; of a trace, as many as it has."""
    return list(islice(_times(arrivals, random.Random(seed)), count))


def _times(arrivals: Arrivals, chance: random.Random) -> Iterator[float]:
    if arrivals.trace:
        yield from sorted(arrivals.trace)
    elif arrivals.burst:
        while True:
            yield 0.0
    elif arrivals.waves is not None:
        yield from _waves(arrivals.waves, arrivals.every_s)
    elif arrivals.poisson is not None:
        at_s = 0.0
        while True:
            at_s += chance.expovariate(arrivals.poisson)
            yield at_s
    elif arrivals.ramp is not None:
        yield from _ramp(*arrivals.ramp, arrivals.over_s)
    else:
        rates = arrivals.steps or (arrivals.rate or 1.0,)
        yield from _steps(rates, arrivals.over_s)


def _waves(at_once: int, every_s: float) -> Iterator[float]:
    at_s = 0.0
    while True:
        for _ in range(at_once):
            yield at_s
        at_s += every_s


def _steps(rates: tuple[float, ...], over_s: float) -> Iterator[float]:
    """A step begins where the one before ends, whatever is left of its last gap: the offered rate is exact."""
    begun_s = 0.0
    for number, rate in enumerate(rates):
        last = number == len(rates) - 1
        sent = 0
        while last or sent / rate < over_s - 1e-9:
            yield begun_s + sent / rate
            sent += 1
        begun_s += over_s


def _ramp(first: float, last: float, over_s: float) -> Iterator[float]:
    """The n-th comes when the rate, summed up from the start, has reached n."""
    gain = (last - first) / over_s
    in_all = (first + last) / 2 * over_s
    sent = 0
    while True:
        if sent >= in_all or gain == 0:
            yield over_s + (sent - in_all) / last if gain else sent / first
        else:
            yield (math.sqrt(first * first + 2 * gain * sent) - first) / gain
        sent += 1
