"""What a chart of a series spans: from its values and the bounds near them to heights."""

import math

from seatrial.job import BoundState
from seatrial.report.trend.series import SeriesView

_NEAR = 0.05  # of a figure: a bound that is so near to the runs is always drawn


class Scale:
    """From values to heights: 0 at the lowest that is drawn, 1 at the highest."""

    def __init__(self, view: SeriesView) -> None:
        values = [point.value for point in view.points]
        levels = list(bound_levels(view).values())
        low, high = min(values), max(values)
        # A bound far away must not press the runs flat: it is drawn when it lies near them.
        span = (high - low) or abs(high) * 0.02 or 1.0
        below, above = max(2 * span, _NEAR * abs(low)), max(2 * span, _NEAR * abs(high))
        near = [level for level in levels if low - below <= level <= high + above]
        self.low, self.high = min([low, *near]), max([high, *near])
        if self.low == self.high:
            self.low, self.high = self.low - span / 2, self.high + span / 2

    def __call__(self, value: float) -> float:
        # Halved first: the span of two floats may be more than a float can hold.
        return min(1.0, max(0.0, (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)))

    def shows(self, value: float) -> bool:
        return self.low <= value <= self.high


def bound_levels(view: SeriesView) -> dict[str, float]:
    """Of a bound that is in use, the upper one first."""
    bound = view.bound
    if bound is None or bound.state is not BoundState.USABLE:
        return {}
    levels = {"upper": bound.upper, "lower": bound.lower}
    return {side: level for side, level in levels.items() if level is not None and math.isfinite(level)}


def bounds_outside(view: SeriesView, scale: Scale) -> list[str]:
    """Which of the bounds, "upper" or "lower", lie outside what is drawn."""
    return [side for side, level in bound_levels(view).items() if not scale.shows(level)]
