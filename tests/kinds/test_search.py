"""The search for the highest rate that keeps the bounds: what is tried, and between which rates the limit is."""

import math

import pytest

from seatrial.kinds.search import CLOSE, MOST_TRIES, Searched, Try, search_rate


async def found(
    limit: float, first: float = 10.0, most: float = 10_000.0, late_at: float = math.inf
) -> Searched[float]:
    async def attempt(rate: float) -> Try[float]:
        return Try(
            rate, ["scheduled.p99"] if rate > limit else [], "the driver was late" if rate >= late_at else "", rate
        )

    return await search_rate(first, most, attempt, lambda: False)


@pytest.mark.parametrize("limit", [0.7, 3.0, 10.0, 37.0, 812.0, 9_999.0])
async def test_the_limit_is_between_what_holds_and_what_does_not(limit: float) -> None:
    done = await found(limit)
    assert done.low <= limit < done.high
    assert done.high / done.low <= CLOSE
    assert done.holds == done.low
    assert len(done.tries) < MOST_TRIES


async def test_a_limit_that_is_not_reached_says_so() -> None:
    done = await found(math.inf, most=500.0)
    assert (done.low, done.high) == (500.0, 0.0)
    none = await found(0.0)
    assert (none.low, none.holds) == (0.0, None)
    assert none.high <= 10.0 / 16


async def test_a_driver_that_is_late_ends_it_with_what_held_before() -> None:
    done = await found(100.0, late_at=40.0)
    assert done.doubt == "the driver was late"
    assert (done.low, done.high) == (20.0, 0.0)


async def test_it_stops_when_it_is_told_to() -> None:
    tried = []

    async def attempt(rate: float) -> Try[None]:
        tried.append(rate)
        return Try(rate, [], "", None)

    await search_rate(1.0, 1e9, attempt, lambda: len(tried) == 3)
    assert tried == [1.0, 2.0, 4.0]
