"""Changes found while a series grows: they stay, each is found once, and the far past is not judged again."""

import importlib
import itertools
import math
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from change_series import Floats, levels, lively, near, noise
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.stats.change_points import Change, change_points
from seatrial.stats.change_signal import Signal, signal_of
from seatrial.stats.online import SAME_RUNS, SAMPLE_RUNS, WAIT_RUNS, WINDOW_RUNS, Online

HOLES = 10  # values that are not finite, at most, in a window of the series below


def grown(values: Iterable[float]) -> list[tuple[int, Change]]:
    """(how many values there were, change) for each change that was reported; the rules of `Online` are checked."""
    detector = Online()
    reported: list[tuple[int, Change]] = []
    for runs, value in enumerate(values, 1):
        new = detector.append(value)
        reported += [(runs, change) for change in new]
        assert all(runs - WINDOW_RUNS - HOLES <= change.index < runs for change in new), "the far past was judged again"
        if new:
            in_order = sorted((change for _, change in reported), key=lambda change: change.index)
            assert detector.changes == in_order, "a reported change was lost or altered"
            places = [change.index for change in in_order]
            assert all(b - a > SAME_RUNS for a, b in itertools.pairwise(places)), "found twice"
    return reported


def test_lively_series_give_their_changes_once_each_soon_and_hardly_any_other() -> None:
    hits = wanted = beside = runs = agreed = 0
    delays = []
    for seed in range(8):
        values, places = lively(seed)
        reported = grown(values)
        found = [change.index for _, change in reported]
        hit, extra = near(found, places)
        hits, wanted, beside, runs = hits + hit, wanted + len(places), beside + extra, runs + len(values)
        delays += [at - change.index for at, change in reported]
        agreed += near(found, [change.index for change in change_points(values)])[0]
    assert hits >= 0.9 * wanted, f"{hits} of {wanted}"
    assert beside <= 2 * runs / 1000, f"{beside} in {runs} runs"
    assert agreed >= 0.9 * wanted, "at once and run by run differ"
    assert np.median(delays) <= 12


def test_noise_stays_silent() -> None:
    assert sum(len(grown(noise(seed, 600))) for seed in range(2)) <= 1


def test_a_change_is_told_with_its_levels_some_runs_after_it() -> None:
    values, (place,) = levels((100, 200.0), (40, 220.0))
    ((runs, change),) = grown(values + noise(3, 140, 0.0))
    assert change.index == place
    assert place + WAIT_RUNS <= runs <= place + 12
    assert change.before == pytest.approx(200, abs=1)
    assert change.after == pytest.approx(220, abs=2)


def test_a_step_that_was_too_small_while_it_was_new_stays_nothing() -> None:
    """All of a series together may say otherwise, but its past was judged."""
    values, _ = levels((150, 100.0), (350, 101.0), (60, 120.0))
    values += noise(5, len(values), 0.0)
    assert [change.index for _, change in grown(values)] == [500]


def test_a_detector_that_goes_on_gives_what_one_gives_that_saw_all() -> None:
    values, _ = lively(21)
    at_once = [(runs, change) for runs, change in grown(values)]
    half = len(values) // 2
    detector = Online()
    for value in values[:half]:
        detector.append(value)
    before = detector.changes
    for value in values[half:]:
        detector.append(value)
    assert before == [change for runs, change in at_once if runs <= half]
    assert detector.changes == sorted((change for _, change in at_once), key=lambda change: change.index)


def test_values_that_are_not_finite_are_passed_over_and_the_others_keep_their_index() -> None:
    values, (place,) = levels((100, 100.0), (60, 110.0))
    values += noise(6, 160, 0.0)
    values[[0, 50, 97, 120]] = [math.nan, math.inf, -math.inf, math.nan]
    assert [change.index for _, change in grown(values)] == [place]


def test_what_is_kept_does_not_grow_with_the_series(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Online()
    looked_at = []

    def watched(values: Floats, whole: Floats, runs: int) -> Signal | None:
        looked_at.append(len(values) + len(whole))
        return None if runs % 500 else signal_of(values, whole, runs)

    monkeypatch.setattr("seatrial.stats.online.signal_of", watched)
    for value in noise(7, 5_000).tolist():
        detector.append(value)
    assert max(looked_at) <= WINDOW_RUNS + SAMPLE_RUNS
    kept = [held for held in vars(detector).values() if isinstance(held, list | dict)]
    assert sum(map(len, kept)) <= 2 * WINDOW_RUNS + SAMPLE_RUNS + 50


def test_the_sample_of_the_whole_is_even() -> None:
    detector = Online()
    for place in range(3_000):
        detector._keep(float(place))
    assert len(detector._sample) > SAMPLE_RUNS / 2 - 1
    assert set(np.diff(detector._sample)) == {float(detector._stride)}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats() | st.integers(-3, 3), max_size=60))
def test_any_figures_are_taken(values: list[float]) -> None:
    for _, change in grown(values):
        assert math.isfinite(values[change.index])
        assert 0 <= change.confidence <= 1


def test_magnitudes_that_leave_the_range_of_the_window_do_not_overflow() -> None:
    values, _ = levels((30, 1.7e308), (WINDOW_RUNS + 20, 1e-300), (30, -1.7e308))
    assert next(change.index for _, change in grown(values)) == 30


LABELS = os.environ.get("SEATRIAL_CHANGES_DATA")


@pytest.mark.skipif(not LABELS, reason="SEATRIAL_CHANGES_DATA names no labelled series")
def test_nothing_is_lost_or_found_twice_in_labelled_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    labels = importlib.import_module("_labels")
    shortest = sorted(labels.read(Path(str(LABELS))), key=lambda labelled: len(labelled.values))[:4]
    assert sum(len(grown(labelled.values)) for labelled in shortest) >= 4
