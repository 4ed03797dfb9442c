"""Widening an entry: the floor that keeps the width, also where the center says nothing, and a method that is true."""

import pytest

from seatrial.baseline import OURS, BaselineEntry, adjust
from seatrial.baseline.edit import Refused, Why, edited
from seatrial.baseline.read import BASELINE_LIMITS, baselines_of
from seatrial.suite.yaml.source import Source

WHY = Why("because", 1_790_812_800.0)
TEXT = "baselines: {{train: {{step_time: {{{}}}}}}}"


def read(text: str) -> BaselineEntry:
    return baselines_of(Source("f", text, limits=BASELINE_LIMITS)).entries["train"]["step_time"]


def widened(keys: str, by: float | None = None, to: float | None = None, force: bool = False) -> BaselineEntry:
    """The entry after it was widened, written and read again."""
    text = TEXT.format(keys)
    made = adjust.widen(read(text), Why("because", WHY.at_s, force), by, to)
    return read(edited(text, "f", OURS, [made.edit]))


@pytest.mark.parametrize(("by", "to"), [(0.2, None), (None, 0.06)])
def test_a_center_of_zero_is_taken_as_the_middle_of_the_bounds(by: float | None, to: float | None) -> None:
    entry = widened("lower: 1.9, upper: 2.1, center: 0, floor: 0.015", by, to)
    assert (entry.bound.lower, entry.bound.upper) == (pytest.approx(1.88), pytest.approx(2.12))
    assert entry.keys.floor == pytest.approx(0.06)


@pytest.mark.parametrize("keys", ["lower: -1, upper: 1, center: 0", "lower: -1, upper: 1"])
def test_bounds_around_zero_have_no_floor_that_could_keep_them_and_are_refused(keys: str) -> None:
    with pytest.raises(Refused, match="centered on zero"):
        adjust.widen(read(TEXT.format(keys)), WHY, by=0.2)


def test_the_floor_is_never_above_the_cap() -> None:
    entry = widened("lower: 1.99, upper: 2.01, center: 2, cap: 0.12345", to=0.12341)
    assert entry.keys.floor == entry.keys.cap == 0.12345
    entry = widened("lower: -0.01, upper: 0.03, center: 0.01, cap: 2", by=0.5, force=True)
    assert entry.keys.floor == entry.keys.cap == 3


@pytest.mark.parametrize(
    ("method", "after"),
    [
        ('"t interval, widened to the floor of 1.5 %"', "t interval, widened to 10.00%"),
        ('"t interval, widened to 5.00%, recentered on 2 runs"', "t interval, recentered on 2 runs, widened to 10.00%"),
        ('""', "by hand, widened to 10.00%"),
    ],
)
def test_the_method_tells_the_width_that_it_has_now(method: str, after: str) -> None:
    assert widened(f"lower: 1.9, upper: 2.1, center: 2, method: {method}", to=0.1).keys.method == after
