"""Which runs a bound is made from: by verdicts, by people's words and by changes of the level."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from seatrial.stats.bounds import FALSE_ALARM, prediction_interval
from seatrial.stats.changes import ChangePoint
from seatrial.stats.clean import Better, Cleaned, Detect, Past, RunMark, clean_series

ALARM = Past(1.0, alarm=True)
UNEXPLAINED = "out of bounds, unexplained"


def at(*indices: int) -> Detect:
    """Changes as data, so that the rules are tested and not the detector."""
    return lambda values: [ChangePoint(index, 1.0, 2.0, 1.0, 1.0) for index in indices]


def levels(*parts: tuple[float, int]) -> tuple[list[Past], Detect]:
    """Runs at one level after the other, and the changes between them."""
    points = [Past(level) for level, runs in parts for _ in range(runs)]
    edges = np.cumsum([runs for _, runs in parts])[:-1].tolist()
    return points, at(*edges)


def noisy(*parts: tuple[float, int], seed: int = 1) -> list[Past]:
    """The same with 1 % noise, for the real detector."""
    rng = np.random.default_rng(seed)
    return [Past(float(level * rng.normal(1, 0.01))) for level, runs in parts for _ in range(runs)]


def quiet(points: list[Past], better: Better = "lower") -> Cleaned:
    return clean_series(points, better, at())


def test_good_runs_of_one_level_are_all_used() -> None:
    assert quiet([Past(1.0)] * 4) == Cleaned([0, 1, 2, 3])
    assert quiet([]) == Cleaned([])


def test_failed_runs_and_metrics_that_are_not_finite_are_out() -> None:
    cleaned = quiet([Past(1.0), Past(9.0, good=False), Past(math.nan), Past(1.0)])
    assert cleaned.used == [0, 3]
    assert cleaned.left_out == {1: "the run failed", 2: "not a finite number"}


def test_an_alarm_is_out_until_somebody_calls_it_false() -> None:
    assert quiet([Past(1.0), ALARM]).left_out == {1: UNEXPLAINED}
    assert quiet([Past(1.0), replace(ALARM, mark="false-alarm")]).used == [0, 1]


def test_from_a_regression_on_all_is_out_until_the_run_that_fixed_it() -> None:
    marks: list[RunMark] = ["", "regression", "", "", "fixed", ""]
    cleaned = quiet([Past(1.0, mark=mark) for mark in marks])
    assert cleaned.used == [0, 4, 5]
    assert cleaned.left_out == {
        1: "marked as a regression",
        2: "after a regression, not yet fixed",
        3: "after a regression, not yet fixed",
    }
    assert cleaned.open_regression is None


def test_a_regression_that_nobody_fixed_is_open() -> None:
    cleaned = quiet([Past(1.0), Past(1.0, mark="regression"), ALARM, Past(1.0, mark="false-alarm")])
    assert cleaned.used == [0]
    assert cleaned.open_regression == 1


def test_a_failed_run_can_begin_and_end_a_regression() -> None:
    points = [
        Past(1.0),
        Past(1.0, good=False, mark="regression"),
        Past(1.0),
        Past(1.0, good=False, mark="fixed"),
        Past(1.0),
    ]
    assert quiet(points).used == [0, 4]


def test_an_accepted_run_starts_the_level_and_ends_a_regression() -> None:
    points = [Past(1.0), Past(1.2, mark="regression", accepted=True), Past(1.2)]
    cleaned = quiet(points)
    assert cleaned.used == [1, 2]
    assert cleaned.left_out == {0: "before the accepted level"}
    assert cleaned.open_regression is None


def test_accepted_runs_that_follow_each_other_are_one_level_from_the_first_of_them_on() -> None:
    accepted = replace(ALARM, accepted=True)
    cleaned = quiet([Past(1.0), accepted, Past(1.0, good=False), accepted, accepted, ALARM])
    assert cleaned.used == [1, 3, 4, 5]
    assert cleaned.left_out == {0: "before the accepted level", 2: "the run failed"}


def test_an_accepted_level_can_be_marked_as_a_regression_later() -> None:
    points = [
        Past(1.2, accepted=True),
        Past(1.2, accepted=True, mark="regression"),
        Past(1.2, accepted=True),
        Past(1.2),
    ]
    cleaned = quiet(points)
    assert (cleaned.used, cleaned.open_regression) == ([0], 1)


def test_a_change_for_the_worse_between_two_accepted_levels_is_no_regression() -> None:
    points, detect = levels((1.0, 5), (1.2, 5))
    points = [replace(past, accepted=True) for past in points]
    cleaned = clean_series(points, "lower", detect)
    assert (cleaned.used, cleaned.open_regression) == ([5, 6, 7, 8, 9], None)


def test_large_levels_are_told_in_plain_digits() -> None:
    points, detect = levels((78350.0, 5), (90000.0, 5))
    assert clean_series(points, "lower", detect).left_out[5] == (
        "since the level got worse (from 78,350 to 90,000) and was not accepted"
    )


def test_the_newest_accepted_run_counts() -> None:
    points = [Past(1.0), Past(1.2, accepted=True), Past(1.2), Past(1.4, accepted=True), Past(1.4)]
    assert quiet(points).used == [3, 4]


def test_alarms_right_after_an_accepted_alarm_were_judged_by_bounds_that_no_longer_hold() -> None:
    points = [Past(1.0), replace(ALARM, accepted=True), ALARM, Past(1.0, good=False), ALARM, Past(1.0), ALARM]
    cleaned = quiet(points)
    assert cleaned.used == [1, 2, 4, 5]
    assert cleaned.left_out[6] == UNEXPLAINED


def test_an_alarm_after_an_accepted_run_that_was_in_order_is_out() -> None:
    assert quiet([Past(1.0, accepted=True), ALARM]).left_out == {1: UNEXPLAINED}


def test_after_a_change_for_the_better_only_the_newest_level_is_used() -> None:
    points, detect = levels((1.0, 3), (0.8, 2))
    cleaned = clean_series(points, "lower", detect)
    assert cleaned.used == [3, 4]
    assert set(cleaned.left_out.values()) == {"before the level changed from 1 to 0.8"}
    assert cleaned.open_regression is None


def test_a_change_for_the_worse_is_an_open_regression_and_the_level_before_it_is_used() -> None:
    points, detect = levels((1.2, 2), (1.0, 3), (1.1, 2))
    cleaned = clean_series(points, "lower", detect)
    assert cleaned.used == [2, 3, 4]
    assert cleaned.left_out[5] == "since the level got worse (from 1 to 1.1) and was not accepted"
    assert cleaned.open_regression == 5


def test_what_is_worse_depends_on_the_metric() -> None:
    points, detect = levels((1.0, 3), (0.8, 2))
    assert clean_series(points, "higher", detect).used == [0, 1, 2]
    assert clean_series(points, "higher", detect).open_regression == 3


def test_a_second_step_for_the_worse_does_not_make_the_first_one_the_baseline() -> None:
    points, detect = levels((1.0, 3), (1.1, 3), (1.2, 3))
    cleaned = clean_series(points, "lower", detect)
    assert cleaned.used == [0, 1, 2]
    assert cleaned.open_regression == 3


def test_a_regression_stays_open_when_only_a_part_of_it_is_undone() -> None:
    points, detect = levels((1.0, 3), (1.2, 3), (1.15, 3))
    assert clean_series(points, "lower", detect).open_regression == 3


def test_a_regression_does_not_end_in_small_steps_back_from_its_worst() -> None:
    points, detect = levels((1.0, 3), (1.8, 3), (1.3, 3), (1.15, 3))
    assert clean_series(points, "lower", detect).open_regression == 3


def test_of_a_regression_that_was_marked_late_the_earlier_start_is_told() -> None:
    points, detect = levels((1.0, 3), (1.2, 3))
    cleaned = clean_series([*points, Past(1.2, mark="regression")], "lower", detect)
    assert cleaned.open_regression == 3
    assert cleaned.used == [0, 1, 2]


def test_a_regression_that_went_away_is_closed() -> None:
    points, detect = levels((1.0, 3), (1.2, 3), (1.01, 3))
    cleaned = clean_series(points, "lower", detect)
    assert cleaned.used == [6, 7, 8]
    assert cleaned.open_regression is None


def test_a_step_below_the_floor_of_the_bounds_is_no_regression_but_many_of_them_are() -> None:
    points, detect = levels((1.0, 3), (1.01, 3))
    assert clean_series(points, "lower", detect).used == [3, 4, 5]
    points, detect = levels((1.0, 3), (1.01, 3), (1.02, 3), (1.03, 3))
    assert clean_series(points, "lower", detect).open_regression == 6


def test_changes_are_found_among_the_runs_that_count_and_given_by_their_place_among_all() -> None:
    points = [Past(1.0), Past(9.0, good=False), Past(1.0), Past(9.0, good=False), Past(0.5), Past(0.5)]
    cleaned = clean_series(points, "lower", at(2))
    assert [change.index for change in cleaned.changes] == [4]
    assert cleaned.used == [4, 5]


def test_a_slow_down_that_alarmed_keeps_the_bounds_of_the_level_before_it() -> None:
    points = noisy((2.44, 40)) + [replace(past, alarm=True) for past in noisy((2.7, 20), seed=2)]
    cleaned = clean_series(points, "lower")
    assert cleaned.used == list(range(40))
    upper = prediction_interval([points[index].value for index in cleaned.used]).upper
    assert upper is not None
    assert upper < 2.6


def test_a_slow_down_from_before_there_were_bounds_is_found_by_the_detector() -> None:
    cleaned = clean_series(noisy((2.44, 40), (2.7, 30)), "lower")
    assert cleaned.open_regression is not None
    assert abs(cleaned.open_regression - 40) <= 2
    assert cleaned.used[0] == 0
    assert cleaned.used[-1] == cleaned.open_regression - 1


def test_a_speed_up_is_found_by_the_detector_and_its_runs_are_used() -> None:
    cleaned = clean_series(noisy((2.44, 40), (2.2, 30)), "lower")
    assert len(cleaned.changes) == 1
    assert abs(cleaned.used[0] - 40) <= 2
    assert cleaned.used[-1] == 69


@pytest.mark.parametrize("n", [8, 20, 100])
def test_cleaning_a_history_in_order_costs_no_false_alarms(n: int) -> None:
    rng, rates = np.random.default_rng(n), []
    for _ in range(400):
        values = rng.normal(1, 0.01, n)
        used = clean_series([Past(value) for value in values.tolist()], "lower").used
        seen = prediction_interval(values[used].tolist(), floor=0)
        if seen.lower is not None and seen.upper is not None:
            rates.append(ndtr((seen.lower - 1) / 0.01) + ndtr((1 - seen.upper) / 0.01))
    assert len(rates) >= 395
    assert 0.2 * FALSE_ALARM <= np.mean(rates) <= 3 * FALSE_ALARM


def test_a_change_that_people_would_not_agree_on_splits_nothing() -> None:
    points, _ = levels((1.0, 10), (1.1, 10))
    doubtful = [ChangePoint(10, 1.0, 1.1, 0.1, 0.6)]
    cleaned = clean_series(points, "lower", lambda values: doubtful)
    assert (cleaned.used, cleaned.open_regression) == (list(range(20)), None)
    assert cleaned.changes == doubtful


def test_runs_that_differ_more_than_their_repeats_are_of_one_level() -> None:
    rng = np.random.default_rng(3)
    points = [
        Past(float(level + 0.001 * rng.standard_normal()), run=f"r{run}")
        for run, level in enumerate(rng.normal(1, 0.01, 12))
        for _ in range(6)
    ]
    assert len(clean_series(points, "lower").used) == 72


def test_a_change_between_runs_with_repeats_is_at_the_first_metric_of_its_run() -> None:
    points = [Past(level, run=f"r{run}") for run, level in enumerate([1.0, 1.0, 0.8, 0.8]) for _ in range(3)]
    cleaned = clean_series(points, "lower", at(2))
    assert [change.index for change in cleaned.changes] == [6]
    assert cleaned.used == [6, 7, 8, 9, 10, 11]


PASTS = st.builds(
    Past,
    st.floats(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "false-alarm", "regression", "fixed"]),
    st.booleans(),
)


@pytest.mark.parametrize("better", ["lower", "higher"])
@given(points=st.lists(PASTS, max_size=30), cut=st.integers(0, 30))
def test_every_run_is_either_used_or_left_out_with_a_reason(better: Better, points: list[Past], cut: int) -> None:
    cleaned = clean_series(points, better, at(cut))
    assert sorted([*cleaned.used, *cleaned.left_out]) == list(range(len(points)))
    assert all(cleaned.left_out.values())
    assert all(points[index].good and math.isfinite(points[index].value) for index in cleaned.used)
    assert cleaned.open_regression is None or cleaned.open_regression not in cleaned.used
