"""The search for the highest rate that keeps the bounds: what is tried, and between which rates the limit is."""

import math
from collections import Counter
from collections.abc import Callable

import pytest

from seatrial.kinds.search import CLOSE, MOST_TRIES, Searched, Try, search_rate

LATE = "the driver was late"


async def found(
    limit: float,
    first: float = 10.0,
    most: float = 10_000.0,
    in_doubt: Callable[[float, bool], bool] = lambda rate, longer: False,
) -> Searched[float]:
    async def attempt(rate: float, longer: bool) -> Try[float]:
        return Try(rate, ["scheduled.p99"] if rate > limit else [], LATE if in_doubt(rate, longer) else "", rate)

    return await search_rate(first, most, attempt, lambda: False)


def between(low: float, high: float) -> Callable[[float, bool], bool]:
    return lambda rate, longer: low <= rate <= high


@pytest.mark.parametrize("limit", [0.7, 3.0, 10.0, 37.0, 812.0, 9_999.0])
async def test_the_limit_is_between_what_holds_and_what_does_not(limit: float) -> None:
    done = await found(limit)
    assert done.low <= limit < done.high
    assert done.high / done.low <= CLOSE
    assert (done.holds, done.doubt) == (done.low, "")
    assert len(done.tries) < MOST_TRIES


async def test_a_limit_that_is_not_reached_has_no_upper_end() -> None:
    done = await found(math.inf, most=500.0)
    assert (done.low, done.high, done.doubt) == (500.0, 0.0, "")
    none = await found(0.0)
    assert (none.low, none.holds, none.doubt) == (0.0, None, "")
    assert none.high <= 10.0 / 16


@pytest.mark.parametrize("limit", [37.0, 812.0])
async def test_a_rate_in_doubt_is_tried_a_second_time_with_a_longer_window(limit: float) -> None:
    done = await found(limit, in_doubt=lambda rate, longer: not longer)
    assert done.low <= limit < done.high <= done.low * CLOSE
    assert {*Counter(one.rate for one in done.tries).values()} == {2}


@pytest.mark.parametrize("doubtful", [(70.0, 90.0), (35.0, 45.0), (9.0, 11.0), (60.0, 1e9)])
async def test_the_rates_around_those_in_doubt_find_the_limit(doubtful: tuple[float, float]) -> None:
    """It bisects through doubt, above the limit and below it."""
    done = await found(52.0, in_doubt=between(*doubtful))
    assert done.low <= 52.0 < done.high <= done.low * CLOSE
    assert done.doubt == ""


async def test_a_search_that_ends_in_doubt_names_the_rate_and_what_is_known_on_both_sides() -> None:
    done = await found(100.0, in_doubt=between(40.0, 130.0))
    assert 40.0 / CLOSE <= done.low < 40.0
    assert 130.0 < done.high <= 130.0 * CLOSE
    lowest = min(one.rate for one in done.tries if one.doubt)
    assert done.doubt == f"at {lowest:.4g}/s, {LATE}"


async def test_doubt_at_all_higher_rates_or_at_all_rates_ends_it_without_a_limit() -> None:
    done = await found(100.0, in_doubt=between(40.0, math.inf))
    assert 40.0 / CLOSE <= done.low < 40.0
    assert (done.high, done.doubt) == (0.0, f"at 40/s, {LATE}")
    assert max(one.rate for one in done.tries) == 160.0, "three rates in doubt are enough"
    none = await found(100.0, in_doubt=between(0.0, math.inf))
    assert (none.low, none.high, none.doubt) == (0.0, 0.0, f"at 0.625/s, {LATE}")


async def test_it_stops_when_asked_to_and_has_then_found_nothing() -> None:
    tried = []

    async def attempt(rate: float, longer: bool) -> Try[None]:
        tried.append(rate)
        return Try(rate, [], "", None)

    done = await search_rate(1.0, 1e9, attempt, lambda: len(tried) == 3)
    assert tried == [1.0, 2.0, 4.0]
    assert done.doubt == "the search ended after 3 tries"
