"""Quantiles of durations of which some did not end: as SciPy has them, and never too small because the slow ones are
left out."""

import warnings
from typing import Any

import numpy as np
import pytest

from seatrial.stats.censored import quantiles

SHARES = (0.1, 0.5, 0.9, 0.95, 0.99)


def drawn(seed: int, count: int, seen_until: float) -> tuple[np.ndarray, np.ndarray]:
    """Durations that are looked at until a time each, and whether they had ended."""
    rng = np.random.default_rng(seed)
    true = rng.lognormal(0, 1, count)
    until = rng.uniform(0, seen_until, count)
    return np.minimum(true, until), true <= until


def survival(times: np.ndarray, ended: np.ndarray) -> Any:
    from scipy.stats import CensoredData, ecdf  # takes a second: not in every process that collects tests

    return ecdf(CensoredData(uncensored=times[ended], right=times[~ended])).sf


@pytest.mark.parametrize("seed", range(20))
def test_they_are_those_of_the_curve_of_kaplan_and_meier(seed: int) -> None:
    times, ended = drawn(seed, 200, 8.0)
    curve = survival(times, ended)
    for found in quantiles(times, ended, SHARES):
        there = curve.quantiles[curve.probabilities <= 1 - found.share + 1e-12]
        assert found.value == (pytest.approx(there[0]) if there.size else None)


@pytest.mark.parametrize("seed", range(20))
def test_their_interval_is_that_of_the_curve(seed: int) -> None:
    times, ended = drawn(seed, 200, 30.0)
    curve_itself = survival(times, ended)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # where the last one has ended, it has no interval
        interval = curve_itself.confidence_interval(0.95, method="log-log")
    for found in quantiles(times, ended, (0.25, 0.5, 0.75)):
        for bound, curve in ((found.lower, interval.low), (found.upper, interval.high)):
            there = curve.quantiles[curve.probabilities <= 1 - found.share + 1e-12]
            assert bound == pytest.approx(there[0])


def test_without_unfinished_ones_they_are_the_plain_quantiles() -> None:
    times = np.arange(1.0, 101.0)
    found = quantiles(times, np.ones(100, bool), SHARES)
    assert [one.value for one in found] == [10, 50, 90, 95, 99]
    assert all(one.lower <= (one.value or 0) <= (one.upper or np.inf) for one in found)


def test_the_interval_holds_the_true_median_as_often_as_it_says() -> None:
    held = 0
    for seed in range(300):
        times, ended = drawn(seed, 60, 12.0)
        (median,) = quantiles(times, ended, (0.5,))
        held += median.lower <= 1.0 <= (median.upper if median.upper is not None else np.inf)
    assert 270 <= held <= 298


def test_what_never_ended_is_not_left_out() -> None:
    """Of 100, 60 end in a second, and 40 are stuck: the median is a second, the 99th percentile is not known."""
    times = np.concatenate([np.ones(60), np.full(40, 600.0)])
    median, high = quantiles(times, np.arange(100) < 60, (0.5, 0.99))
    assert median.value == 1.0
    assert (high.value, high.lower, high.upper) == (None, 600.0, None)


def test_nothing_at_all_and_nothing_that_ended() -> None:
    assert quantiles([], [], (0.5,))[0].value is None
    stuck = quantiles([3.0, 5.0], [False, False], (0.5,))[0]
    assert (stuck.value, stuck.lower, stuck.upper) == (None, 5.0, None)


@pytest.mark.parametrize(("times", "ended"), [([1.0], []), ([-1.0], [True]), ([float("nan")], [True]), ([1e999], [1])])
def test_what_is_no_duration_is_refused(times: list[float], ended: list[bool]) -> None:
    with pytest.raises(ValueError, match="duration"):
        quantiles(times, ended, (0.5,))
