"""The search for the highest rate that keeps the bounds. Pure but for what it tries."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec

CLOSE = 1.1  # it ends when the rate that holds and the one that does not are this close
MOST_TRIES = 24
SLOWEST = 16  # so many times slower than the first rate is the last to try

_T = TypeVar("_T")


class Try(msgspec.Struct, Generic[_T], frozen=True):
    """One rate."""

    rate: float
    broken: list[str]  # bounds that do not hold, each with what was measured
    doubt: str  # why this says nothing of what was tried, such as that the driver was late; empty: it does
    result: _T


class Searched(msgspec.Struct, Generic[_T], frozen=True):
    tries: list[Try[_T]]
    low: float  # the highest rate that kept the bounds; 0: none did
    high: float  # the lowest that did not; 0: none
    doubt: str  # why it ended before the limit was found
    holds: _T | None  # of the rate `low`


async def search_rate(
    first: float, most: float, attempt: Callable[[float], Awaitable[Try[_T]]], stopped: Callable[[], bool]
) -> Searched[_T]:
    """Doubles the rate until the bounds break, halves it until they hold, and then goes between the two."""
    tries: list[Try[_T]] = []
    low, high, rate, doubt = 0.0, 0.0, first, ""
    holds: _T | None = None
    while len(tries) < MOST_TRIES and not stopped():
        tried = await attempt(rate)
        tries.append(tried)
        doubt = tried.doubt
        if doubt:
            break
        if tried.broken:
            high = rate
        else:
            low, holds = rate, tried.result
        found = high and low and high / low <= CLOSE
        if found or (not high and rate >= most) or (not low and rate <= first / SLOWEST):
            break
        rate = (low * high) ** 0.5 if low and high else min(rate * 2, most) if low else rate / 2
    return Searched(tries, low, high, doubt, holds)
