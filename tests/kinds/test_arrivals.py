"""The times of an open loop are those that were asked for, to the last one."""

import itertools
import statistics

import pytest

from seatrial.kinds.arrivals import Arrivals, offsets


def test_a_rate_is_even() -> None:
    assert offsets(Arrivals("rate", 4.0), 5) == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_poisson_has_its_rate_and_its_spread_and_comes_from_its_seed() -> None:
    times = offsets(Arrivals("poisson", 50.0), 20_000, seed=3)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(0.02, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.02, rel=0.03)
    assert (
        times
        == offsets(Arrivals("poisson", 50.0), 20_000, seed=3)
        != offsets(Arrivals("poisson", 50.0), 20_000, seed=4)
    )


def test_a_burst_is_at_once_and_waves_lose_no_remainder() -> None:
    assert offsets(Arrivals("burst", burst=3), 3) == [0.0, 0.0, 0.0]
    assert offsets(Arrivals("burst", burst=3, every_s=2.0), 8) == [0, 0, 0, 2, 2, 2, 4, 4]


def test_steps_offer_exactly_their_rates() -> None:
    times = offsets(Arrivals("steps", rates=(1.0, 3.0, 7.0), every_s=10.0), 130)
    assert sum(time < 10 for time in times) == 10
    assert sum(10 <= time < 20 for time in times) == 30
    assert sum(20 <= time < 30 for time in times) == 70


@pytest.mark.parametrize(("first", "last"), [(1.0, 9.0), (9.0, 1.0), (5.0, 5.0)])
def test_a_ramp_has_the_rate_that_it_should_have_all_the_way(first: float, last: float) -> None:
    times = offsets(Arrivals("ramp", first, last, every_s=20.0), 400)
    assert times == sorted(times)
    for begun_s in range(0, 20, 4):
        here = first + (last - first) * (begun_s + 2) / 20
        assert sum(begun_s <= time < begun_s + 4 for time in times) == pytest.approx(4 * here, abs=1.5)
    after = [time for time in times if time >= 20]
    assert after[10] - after[0] == pytest.approx(10 / last)


def test_a_trace_is_what_it_is() -> None:
    assert offsets(Arrivals("trace", times=(1.0, 2.0, 3.0)), 2) == [1.0, 2.0]


def test_none_begins_after_the_time_of_the_load() -> None:
    assert offsets(Arrivals("rate", 2.0), None, seconds=1.5) == [0.0, 0.5, 1.0]
    with pytest.raises(ValueError, match="the load is empty"):
        offsets(Arrivals("trace", times=(5.0,)), 3, seconds=1.0)
