"""Changes of the level of a series: found where they are, and nowhere else."""

import importlib
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from change_series import Floats, levels, lively, near, noise, remembering
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.stats.changes import (
    LEAST,
    ChangePoint,
    Ints,
    Signal,
    change_points,
    features,
    least_confidence,
    signal_of,
)


def indices(values: Sequence[float] | Floats) -> list[int]:
    return [change.index for change in change_points(values)]


def test_a_step_is_one_change_with_its_levels_its_size_and_a_high_confidence() -> None:
    values, (place,) = levels((60, 200.0), (60, 210.0))
    (change,) = change_points((values + noise(1, 120, 0.0)).tolist())
    assert change.index == place
    assert change.before == pytest.approx(200, abs=1)
    assert change.after == pytest.approx(210, abs=1)
    assert change.size == pytest.approx(0.05, abs=0.01)
    assert 0.95 < change.confidence <= 1


def test_a_step_down_has_a_negative_size() -> None:
    values, _ = levels((60, 210.0), (60, 200.0))
    (change,) = change_points(values + noise(2, 120, 0.0))
    assert change.size == pytest.approx(-1 / 21, abs=0.01)


def test_lively_series_give_nearly_all_their_changes_and_hardly_any_other() -> None:
    hits = wanted = beside = runs = 0
    for seed in range(60):
        values, places = lively(seed)
        hit, extra = near(indices(values), places)
        hits, wanted, beside, runs = hits + hit, wanted + len(places), beside + extra, runs + len(values)
    assert hits >= 0.95 * wanted, f"{hits} of {wanted}"
    assert beside <= runs / 1000, f"{beside} in {runs} runs"


@pytest.mark.parametrize("runs", [10, 30, 100, 400, 1000])
def test_noise_has_less_than_one_false_alarm_in_1000_runs(runs: int) -> None:
    times = min(20_000 // runs, 400)
    false = sum(len(indices(noise(1000 * runs + seed, runs))) for seed in range(times))
    assert false <= runs * times / 1000, f"{false} in {runs * times} runs"


def test_noise_with_long_tails_has_less_than_one_false_alarm_in_1000_runs() -> None:
    dice = np.random.default_rng(5)
    series = [dice.standard_t(2, size=200) for _ in range(50)] + [dice.exponential(size=200) for _ in range(50)]
    assert sum(len(indices(values)) for values in series) <= 20


def test_noise_that_remembers_a_little_has_less_than_one_false_alarm_in_1000_runs() -> None:
    assert sum(len(indices(remembering(seed, 500, 0.2))) for seed in range(40)) <= 20


def test_spikes_of_up_to_three_runs_are_no_changes() -> None:
    for seed in range(20):
        values = noise(seed, 200)
        values[40] += 50
        values[90:92] += 30
        values[140:143] -= 40
        assert indices(values) == []


def test_a_slow_drift_is_hardly_ever_taken_for_a_change() -> None:
    assert sum(len(indices(noise(seed, 500) + np.linspace(0, 3, 500))) for seed in range(20)) <= 5


def test_a_short_episode_is_two_changes() -> None:
    values, places = levels((150, 100.0), (12, 110.0), (150, 100.0))
    found = indices(values + noise(4, len(values), 0.0))
    assert near(found, places, 1) == (2, 0)


def test_a_change_shows_a_few_runs_after_it_happened() -> None:
    found = 0
    for seed in range(20):
        values = noise(seed, 106)
        values[100:] += 8
        found += near(indices(values), [100], 1) == (1, 0)
    assert found >= 19


def test_a_step_between_constants_is_found_at_its_very_run() -> None:
    values, places = levels((30, 5.0), (30, 6.0), (1000, 6.5))
    assert indices(values) == places


def test_a_metric_that_hardly_ever_changed_shows_a_new_level_at_its_end() -> None:
    values, places = levels((3000, 512.0), (8, 768.0))
    assert indices(values) == places


@pytest.mark.parametrize(
    "values", [[], [1.0], [1.0, 2.0], [1.0, 2.0, 3.0], [7] * 50, [0.0] * 50, [math.nan] * 9, [math.inf]]
)
def test_what_cannot_have_changed_has_no_changes(values: list[float]) -> None:
    assert change_points(values) == []


def test_values_that_are_not_finite_are_passed_over_and_the_others_keep_their_index() -> None:
    values, (place,) = levels((60, 100.0), (60, 110.0))
    values += noise(7, 120, 0.0)
    excluded = {3: math.nan, 10: math.inf, 58: -math.inf, 59: math.nan, 90: math.nan}
    for index, value in excluded.items():
        values[index] = value
    assert indices(values) == [place]


def test_a_change_right_after_a_hole_is_at_the_first_finite_run() -> None:
    values, _ = levels((60, 100.0), (60, 110.0))
    values += noise(7, 120, 0.0)
    values[60:63] = math.nan
    assert indices(values) == [63]


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 3.0, 1e9, 1e300])
@pytest.mark.parametrize("level", [0.0, 50.0, -50.0])
def test_scale_and_level_make_no_difference(scale: float, level: float) -> None:
    values, _ = levels((60, 0.0), (60, 5.0), (90, -4.0))
    values += noise(11, 210, 0.0)
    plain = change_points(values)
    other = change_points((values + level) * scale)
    assert len(plain) >= 2
    assert [c.index for c in other] == [c.index for c in plain]
    assert [c.confidence for c in other] == pytest.approx([c.confidence for c in plain], abs=1e-6)


def test_a_series_upside_down_has_the_same_changes() -> None:
    values, _ = lively(12)
    assert indices(-values) == indices(values)


def test_metrics_at_the_ends_of_a_float_do_not_overflow() -> None:
    values, places = levels((30, -1.7e308), (30, 1.7e308))
    (change,) = change_points(values)
    assert change.index == places[0]
    assert change.size == pytest.approx(2.0)


def test_a_change_from_zero_is_infinitely_large() -> None:
    values, places = levels((30, 0.0), (30, 2.0), (30, 0.0))
    assert [(c.index, c.size) for c in change_points(values)] == [(places[0], math.inf), (places[1], -1.0)]


def test_size_has_the_sign_of_the_difference_below_zero_too() -> None:
    values, _ = levels((40, -10.0), (40, -5.0))
    (change,) = change_points(values)
    assert change.size == pytest.approx(0.5)


def test_integers_and_tuples_are_fine() -> None:
    assert indices((1,) * 20 + (2,) * 20) == [20]


def test_what_is_given_is_not_touched() -> None:
    values, _ = lively(13)
    kept = values.copy()
    change_points(values)
    assert np.array_equal(values, kept)


@settings(max_examples=150)
@given(st.lists(st.floats() | st.integers(-3, 3), max_size=120))
def test_any_metrics_give_changes_in_order_with_sound_fields(values: list[float]) -> None:
    changes = change_points(values)
    places = [change.index for change in changes]
    assert places == sorted(set(places))
    for change in changes:
        assert isinstance(change, ChangePoint)
        assert 0 < change.index < len(values)
        assert math.isfinite(values[change.index])
        assert math.isfinite(change.before)
        assert math.isfinite(change.after)
        assert not math.isnan(change.size)
        assert 0 <= change.confidence <= 1


def hostile(runs: int) -> dict[str, Floats]:
    place = np.arange(runs)
    return {
        "walk": np.cumsum(noise(1, runs, 0.0)),
        "exponential": np.exp(place / 200),
        "square": (place // 7 % 2).astype(float),
        "growing": (place // 9 % 2) * (1.0 + place),
        "shrinking": (place // 9 % 2) / (1.0 + place),
        "stairs": place // 10 + noise(2, runs, 0.0) / 10,
        "cauchy": np.random.default_rng(3).standard_cauchy(size=runs),
    }


@pytest.mark.parametrize("name", list(hostile(10)))
def test_of_100_000_values_at_most_50_000_places_are_weighed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[int] = []

    def counted(signal: Signal, left: Ints, at: Ints, right: Ints) -> Floats:
        scored.append(len(at))
        return features(signal, left, at, right)

    monkeypatch.setattr("seatrial.stats.changes.features", counted)
    change_points(hostile(100_000)[name])
    assert 1 <= sum(scored) <= 50_000


def test_many_changes_need_more_confidence_and_short_series_too() -> None:
    least = [least_confidence(changes, 1_000) for changes in (1, 8, 100)]
    assert least == pytest.approx([LEAST, 0.31, 0.51], abs=0.01)
    assert least_confidence(1, 50) == least[1]
    assert least_confidence(100, 50) == least[2]


@pytest.mark.parametrize(
    ("levels", "returns", "reverts"),
    [
        ([0.0, 5.0, 0.0, 5.0], 0.0, 0.0),  # up, down and up again
        ([0.0, 5.0, 10.0, 15.0], 2.0, 2.0),  # stairs
        ([0.0, 0.0, 5.0, 5.0], 1.0, 1.0),
        ([90.0, 5.0, 0.0, 80.0], 3.0, 3.0),  # clipped
    ],
)
def test_levels_beyond_the_neighbours_count_in_sizes_of_the_change(
    levels: list[float], returns: float, reverts: float
) -> None:
    signal = signal_of(np.repeat(levels, 50) + noise(4, 200, 0.0) * 0.1)
    assert signal is not None
    (row,) = features(signal, np.array([50]), np.array([100]), np.array([150]))
    assert row[5:] == pytest.approx([returns, reverts], abs=0.05)
    (alone,) = features(signal, np.array([0]), np.array([100]), np.array([200]))
    assert alone[5:] == pytest.approx([1.0, 1.0])


LABELS = os.environ.get("SEATRIAL_CHANGES_DATA")


@pytest.mark.skipif(not LABELS, reason="SEATRIAL_CHANGES_DATA names no labelled series")
def test_labelled_series_are_seen_as_people_see_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    labels = importlib.import_module("_labels")
    scores = [labels.score(series, indices(series.values)) for series in labels.read(Path(str(LABELS)))]
    f1, agreed_f1, false_per_1000 = labels.metrics(scores)
    assert f1 >= 0.83
    assert agreed_f1 >= 0.755
    assert false_per_1000 <= 0.9
