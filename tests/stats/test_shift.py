"""A lasting shift that no single run shows: which runs add up to one, and since when."""

import random

import pytest

from seatrial.stats.shift import find_shift

QUIET = [10.0, 10.1, 9.9, 10.05, 9.95, 10.0, 10.1, 9.9]


def found(*values: float, lower: float | None = 9.0, upper: float | None = 11.0) -> str | None:
    runs = [(f"r{number}", value) for number, value in enumerate(values)]
    shift = find_shift(runs, lower, upper, 10.0)
    return shift.text if shift else None


def test_runs_on_one_side_add_up_and_the_first_of_them_is_named() -> None:
    assert found(*QUIET, 10.8, 10.7, 10.9) is None
    assert found(*QUIET, 10.8, 10.7, 10.9, 10.8) == "8 % above its baseline since run r8 (4 runs)"
    assert found(*QUIET, 9.2, 9.3, 9.1, 9.2, 9.2) == "8 % below its baseline since run r8 (5 runs)"


@pytest.mark.parametrize(
    "later",
    [
        (14.0, 14.0, 14.0),  # three outliers, which bounds of single runs find
        (10.8, 10.7, 10.9, 10.8, 10.1),  # the last run is back
        (10.6, 9.4, 10.7, 9.3, 10.8, 9.2, 10.8),  # noise on both sides
        (10.3, 10.3, 10.3, 10.3, 10.3, 10.3),  # less than the slack
    ],
)
def test_what_is_not_a_lasting_shift(later: tuple[float, ...]) -> None:
    assert found(*QUIET, *later) is None


def test_a_side_without_a_bound_has_no_shift() -> None:
    up = [*QUIET, 10.8, 10.8, 10.8, 10.8]
    assert found(*up, upper=None) is None
    assert found(*up, lower=None) == "8 % above its baseline since run r8 (4 runs)"
    assert found(*up, lower=None, upper=None) is None
    # A lower bound that was clamped at 0 does not make the other side narrower.
    assert found(*QUIET, 7.5, 7.5, 7.5, 7.5, lower=0.0, upper=25.0) is None


def test_a_shift_as_old_as_all_known_runs_may_be_older() -> None:
    assert found(*[10.8] * 20) == "8 % above its baseline since run r0 or earlier (20 runs)"


def test_levels_of_zero_and_no_runs() -> None:
    runs = [(str(number), 0.8) for number in range(5)]
    shift = find_shift(runs, -1.0, 1.0, 0.0)
    assert shift is not None
    assert (shift.up, shift.size) == (True, 0.0)
    assert shift.text == "above its baseline since run 0 or earlier (5 runs)"
    assert find_shift([], 9.0, 11.0, 10.0) is None
    assert find_shift([("a", 5.0)] * 9, 5.0, 5.0, 5.0) is None


def test_eight_percent_at_three_percent_noise_is_found_within_six_runs() -> None:
    """Bounds of 20 runs; bench/bounds.py measures it with more."""
    chance = random.Random(18)
    half, seen = 0.03 * 3.25, 0
    for _ in range(400):
        runs = [("before", chance.gauss(1.0, 0.03)) for _ in range(20)]
        late = [chance.gauss(1.08, 0.03) for _ in range(6)]
        tries = ([*runs, *(("after", value) for value in late[:number])] for number in range(1, 7))
        seen += any(find_shift(one, 1 - half, 1 + half, 1.0) for one in tries)
    assert seen / 400 > 0.85
