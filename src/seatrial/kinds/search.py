"""Searches for the highest rate that keeps the bounds, and decides whether a server or cluster keeps up with a rate.
Pure, except for the attempts.

The constants of `Flow` were chosen by simulation (bench/peak.py): the rate found is within 5 % of the capacity of
servers with a queue, with shared processing and with batches."""

import math
from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Generic, NamedTuple, TypeVar

import msgspec

CLOSE = 1.1  # stop when high / low is at most this
MOST_TRIES = 32
SLOWEST = 16  # stop at first rate / this
_MOST_DOUBTS = 3  # rates above all that hold, before it narrows the range below them

_T = TypeVar("_T")


class Try(msgspec.Struct, Generic[_T], frozen=True):
    """The attempt at one rate."""

    rate: float
    broken: list[str]  # bounds that do not hold, each with the measured value
    doubt: str  # why the attempt is not valid, such as a late client; empty if it is
    result: _T


class Searched(msgspec.Struct, Generic[_T], frozen=True):
    tries: list[Try[_T]]
    low: float  # highest rate that kept the bounds; 0 if none did
    high: float  # lowest rate that did not; 0 if all did
    doubt: str  # why the limit was not found, with the rate that could not be decided; empty if it was
    holds: _T | None  # result of the rate `low`


async def search_rate(
    first: float,
    most: float,
    attempt: Callable[[float, bool], Awaitable[Try[_T]]],
    stopped: Callable[[], bool],
    close: float = CLOSE,
) -> Searched[_T]:
    """Doubles the rate until the bounds break, or halves it until they hold, then bisects between the two. A rate in
    doubt is tried a second time (`attempt(rate, True)`). If it stays in doubt, the rates around it decide."""
    tries: list[Try[_T]] = []
    while len(tries) < MOST_TRIES and not stopped():
        again = bool(tries and tries[-1].doubt and [one.rate for one in tries].count(tries[-1].rate) == 1)
        rate = tries[-1].rate if again else _next_rate(tries, first, most, close)
        if rate is None:
            break
        tries.append(await attempt(rate, again))
    low, high, doubts = _range(tries)
    found = low and (low >= most or (high and high / low <= close))
    none_holds = not low and not doubts and high and high <= first / SLOWEST
    doubt = next((f"at {rate:.4g}/s, {why}" for rate, why in doubts.items()), "")
    if found or none_holds:
        doubt = ""
    elif not doubt:
        doubt = f"the search ended after {len(tries)} tries"
    return Searched(tries, low, high, doubt, next((one.result for one in tries if low and one.rate == low), None))


def _range(tries: Sequence[Try[_T]]) -> tuple[float, float, dict[float, str]]:
    """The highest rate that holds, the lowest that does not, and those between them in doubt, with the reason."""
    last = {one.rate: one for one in tries}
    low = max((rate for rate, one in last.items() if not (one.broken or one.doubt)), default=0.0)
    high = min((rate for rate, one in last.items() if one.broken and not one.doubt), default=0.0)
    between = sorted(rate for rate in last if last[rate].doubt and low < rate < (high or math.inf))
    return low, high, {rate: last[rate].doubt for rate in between}


def _next_rate(tries: Sequence[Try[_T]], first: float, most: float, close: float) -> float | None:
    """None if no other rate helps."""
    low, high, doubts = _range(tries)
    if not tries:
        return first
    if not low:
        slowest = min(one.rate for one in tries)
        return slowest / 2 if slowest > first / SLOWEST else None
    top = max(low, *doubts, high)
    if not high and top < most and len(doubts) < _MOST_DOUBTS:
        return min(top * 2, most)
    upper = [*doubts, high] if high else [*doubts]
    ends = [(low, upper[0]), (upper[-2] if len(upper) > 1 else low, high)] if upper else []
    return next((math.sqrt(below * above) for below, above in ends if above > below * close), None)


async def try_each(
    rates: Sequence[float], attempt: Callable[[float], Awaitable[Try[_T]]], stopped: Callable[[], bool]
) -> Searched[_T]:
    """Tries the given rates in order, also those after one that breaks the bounds."""
    tries: list[Try[_T]] = []
    for rate in rates:
        if stopped() or (tries and tries[-1].doubt):
            break
        tries.append(await attempt(rate))
    return limits_of(tries)


def limits_of(tries: list[Try[_T]]) -> Searched[_T]:
    """The limit that the tries show, in the order of their rates: the highest one before the first that fails."""
    held = list(takewhile(lambda tried: not (tried.broken or tried.doubt), tries))
    high = next((tried.rate for tried in tries if tried.broken), 0.0)
    low, holds = (held[-1].rate, held[-1].result) if held else (0.0, None)
    return Searched(tries, low, high, tries[-1].doubt if tries and not high else "", holds)


# ---- whether it keeps up


LEAST = 100  # requests of a window
LONGEST = 8  # a window is extended to this many times the first one that is long enough
WARMUP = 1 / 5  # of the window
_BINS, _POINTS = 16, 10
# A random walk has a slope that differs from 0 by this many residuals of its straight line (standard deviations).
_WALK = 4.24


class Flow(NamedTuple):
    """Requests or workloads during a window after its warm-up."""

    arrived: int
    answered: int
    growth: float  # of the number in flight, by a straight line
    noise: float  # standard deviation of `growth`, if in flight were a random walk

    @property
    def behind(self) -> bool:
        return self.answered < 0.99 * self.arrived

    @property
    def keeps_up(self) -> bool | None:
        """None: undecided; a longer window may decide."""
        if not self.behind and self.growth + 1.5 * self.noise <= 0.03 * self.arrived:
            return True
        return False if self.behind and self.growth > 2.5 * self.noise else None

    @property
    def falls_behind(self) -> str:
        """The reason, also if the longest window did not decide; empty if it keeps up."""
        if self.keeps_up or (self.keeps_up is None and not (self.behind and self.growth > self.noise)):
            return ""
        return f"falls behind: {self.answered / self.arrived:.1%} done, in flight {self.growth:+.0f}"


def measure_flow(starts: Sequence[float], ends: Sequence[float], now_s: float) -> Flow | None:
    """`starts` are in order, `ends` parallel to them, infinite for requests in flight; both from the beginning of the
    load. None if the window is too short for its requests or for their duration."""
    import numpy as np

    begun, ended = np.asarray(starts), np.asarray(ends)
    first_s = float(np.median(np.minimum(ended[:10], now_s) - begun[:10])) if starts else 0.0
    warm_s = max(now_s * WARMUP, 2 * first_s)  # until as many requests end as begin
    edges = np.linspace(warm_s, now_s, _BINS * _POINTS + 1)
    arrived, answered = np.searchsorted(begun, edges), np.searchsorted(np.sort(ended), edges)
    if warm_s > now_s / 2 or arrived[-1] - arrived[0] < LEAST:
        return None
    in_flight = (arrived - answered)[1:].reshape(_BINS, _POINTS).mean(axis=1)
    at = (np.arange(_BINS) + 0.5) / _BINS - 0.5
    growth, level = np.polyfit(at, in_flight, 1)
    residual = math.sqrt(float(((in_flight - level - growth * at) ** 2).sum()) / (_BINS - 2))
    total = int(arrived[-1] - arrived[0]), int(answered[-1] - answered[0])
    return Flow(*total, float(growth), _WALK * residual)
