"""Searches for the highest rate that keeps the bounds. Pure, except for the attempts."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Generic, TypeVar

import msgspec

CLOSE = 1.1  # stop when high / low is at most this
MOST_TRIES = 24
SLOWEST = 16  # stop at first rate / this

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
    doubt: str  # why the search stopped before the limit was found
    holds: _T | None  # result of the rate `low`


async def search_rate(
    first: float,
    most: float,
    attempt: Callable[[float], Awaitable[Try[_T]]],
    stopped: Callable[[], bool],
    close: float = CLOSE,
) -> Searched[_T]:
    """Doubles the rate until the bounds break, or halves it until they hold, then bisects between the two."""
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
        found = high and low and high / low <= close
        if found or (not high and rate >= most) or (not low and rate <= first / SLOWEST):
            break
        rate = (low * high) ** 0.5 if low and high else min(rate * 2, most) if low else rate / 2
    return Searched(tries, low, high, doubt, holds)


async def try_each(
    rates: Sequence[float], attempt: Callable[[float], Awaitable[Try[_T]]], stopped: Callable[[], bool]
) -> Searched[_T]:
    """Tries the given rates in order, also those after one that breaks the bounds."""
    tries: list[Try[_T]] = []
    for rate in rates:
        if stopped() or (tries and tries[-1].doubt):
            break
        tries.append(await attempt(rate))
    held = list(takewhile(lambda tried: not (tried.broken or tried.doubt), tries))
    high = next((tried.rate for tried in tries if tried.broken), 0.0)
    low, holds = (held[-1].rate, held[-1].result) if held else (0.0, None)
    return Searched(tries, low, high, tries[-1].doubt if tries and not high else "", holds)
