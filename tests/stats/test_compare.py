"""What moved between two groups of runs, and how sure that is."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.stats.compare import Difference, compare, relative_noise


def interval(difference: Difference) -> tuple[float, float]:
    assert difference.low is not None
    assert difference.high is not None
    return difference.low, difference.high


def test_one_run_on_each_side_is_judged_by_the_noise_of_the_history() -> None:
    moved = compare([1.0], [1.05], noise=0.01)
    assert moved.size == pytest.approx(0.05)
    assert moved.sure > 0.99
    low, high = interval(moved)
    assert 0 < low < 0.05 < high < 0.1
    assert compare([1.0], [1.01], noise=0.01).sure < 0.6


def test_one_run_on_each_side_without_a_history_is_not_sure_of_anything() -> None:
    unknown = compare([1.0], [9.0])
    assert (unknown.size, unknown.low, unknown.high, unknown.sure) == (8.0, None, None, 0.0)
    assert unknown.why == "one run on each side, and no history to estimate the noise from"


def test_a_single_run_is_judged_by_the_spread_of_the_other_side() -> None:
    assert compare([1.0, 1.01, 0.99, 1.0, 1.005], [1.1]).sure > 0.99
    assert compare([1.1], [1.0, 1.01, 0.99, 1.0, 1.005]).sure > 0.99


def test_a_noise_from_few_runs_makes_less_sure_than_one_from_many() -> None:
    assert compare([1.0], [1.05], 0.01, noise_runs=3).sure < compare([1.0], [1.05], 0.01, noise_runs=100).sure


def test_an_outlier_does_not_move_the_level() -> None:
    before = [1.0, 1.01, 0.99, 1.002, 0.995, 1.004]
    moved = compare([*before, 3.0], before)
    assert moved.size == pytest.approx(0, abs=1e-12)
    assert moved.n_before == 7


@pytest.mark.parametrize(("n_before", "n_after", "noise"), [(1, 1, 0.02), (3, 2, 0.02), (3, 3, None), (8, 20, None)])
def test_of_metrics_that_did_not_move_one_in_twenty_is_sure_at_95_per_cent(
    n_before: int, n_after: int, noise: float | None
) -> None:
    rng, sure, held = np.random.default_rng([n_before, n_after]), 0, 0
    for _ in range(1000):
        # A noise is itself an estimate: here from 20 runs, as the default says.
        seen = None if noise is None else float(rng.normal(1, noise, 20).std(ddof=1))
        difference = compare(rng.normal(1, 0.02, n_before).tolist(), rng.normal(1, 0.02, n_after).tolist(), seen)
        low, high = interval(difference)
        sure += difference.sure > 0.95
        held += low <= 0 <= high
    assert 25 <= sure <= 80
    assert held == 1000 - sure


def test_the_interval_holds_the_true_size_of_a_big_change() -> None:
    rng, held = np.random.default_rng(5), 0
    for _ in range(1000):
        low, high = interval(compare(rng.normal(1, 0.05, 6).tolist(), rng.normal(2, 0.1, 6).tolist()))
        held += low <= 1 <= high
    assert 920 <= held <= 975


def test_sides_with_different_spreads_are_not_taken_for_one() -> None:
    rng, sure = np.random.default_rng(6), 0
    for _ in range(1000):
        sure += compare(rng.normal(1, 0.001, 100).tolist(), rng.normal(1, 0.1, 5).tolist()).sure > 0.95
    assert sure <= 80


def test_constants_are_equal_or_differ_for_sure() -> None:
    assert compare([2.0] * 3, [2.0] * 3).sure == 0
    moved = compare([2.0] * 6, [3.0] * 6)
    assert (moved.sure, moved.size, moved.low, moved.high) == (1, 0.5, 0.5, 0.5)


def test_a_level_of_zero_is_no_measure_but_a_move_away_from_it_is_seen() -> None:
    moved = compare([0.0] * 4, [1.0, 1.1, 0.9, 1.0])
    assert (moved.size, moved.low, moved.high) == (None, None, None)
    assert moved.sure > 0.99
    assert "the level before is 0" in moved.why


def test_a_side_without_metrics_is_named() -> None:
    assert compare([], [1.0]).why == "no values before"
    assert compare([1.0], [math.nan]).why == "no values after"
    assert compare([], []).why == "no values before and after"


def test_a_negative_level_that_sinks_has_a_negative_size() -> None:
    up, down = compare([1.0, 1.01], [1.1, 1.11]), compare([-1.0, -1.01], [-1.1, -1.11])
    assert up.size is not None
    assert down.size == pytest.approx(-up.size)
    assert interval(down) == pytest.approx((-interval(up)[1], -interval(up)[0]))


def test_the_noise_of_a_history_is_relative_and_without_outliers() -> None:
    values = (100 * np.random.default_rng(7).normal(1, 0.02, 200)).tolist()
    assert relative_noise(values) == pytest.approx(0.02, rel=0.15)
    assert relative_noise([*values, 900.0, math.nan]) == relative_noise(values)
    assert relative_noise([1.0]) is None
    assert relative_noise([]) is None
    assert relative_noise([-1.0, 1.0]) is None


@pytest.mark.parametrize("options", [{"level": 1.0}, {"noise": -1.0}, {"noise": math.inf}, {"noise_runs": 1}])
def test_options_that_make_no_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected 0 < level < 1"):
        compare([1.0], [1.0], **options)  # type: ignore[arg-type]


ANY = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=12)


@given(ANY, ANY, st.none() | st.floats(0, allow_infinity=False))
def test_any_floats_give_a_difference_that_keeps_its_promises(
    before: list[float], after: list[float], noise: float | None
) -> None:
    seen = compare(before, after, noise)
    assert 0 <= seen.sure <= 1
    assert (seen.low is None) == (seen.high is None) == bool(seen.why)
    if seen.low is not None and seen.high is not None and seen.size is not None:
        assert seen.low <= seen.high
        assert seen.low - 1e-6 * abs(seen.size + 1) <= seen.size <= seen.high + 1e-6 * abs(seen.size + 1)
