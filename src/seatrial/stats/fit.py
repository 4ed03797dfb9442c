"""The bounds that a history gives: which of its runs count, and the interval that these make. Whoever needs bounds of
past runs asks here, so that a baseline, a report and a measurement of false alarms have the same."""

from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.stats.bounds import CAP, FALSE_ALARM, FLOOR, LEAST_RUNS, Interval, prediction_interval
from seatrial.stats.clean import Better, Cleaned, Past, clean_series

OUTLIER_WHY = "an outlier among the others"


@dataclass(frozen=True)
class Fit:
    """Every index of the points is either in `used` or in `left_out`."""

    interval: Interval
    cleaned: Cleaned
    used: list[int]  # what the interval is made of, oldest first
    left_out: dict[int, str]  # the reason, in plain words; outliers too


def fit_bounds(
    points: Sequence[Past], better: Better, false_alarm: float = FALSE_ALARM, floor: float = FLOOR, cap: float = CAP
) -> Fit:
    """The interval for one figure of one new run after `points` (one series, oldest first)."""
    cleaned = clean_series(points, better)
    kept = [points[index] for index in cleaned.used]
    runs = [past.run or index for index, past in zip(cleaned.used, kept, strict=True)]
    interval = prediction_interval([past.value for past in kept], false_alarm, floor, cap, LEAST_RUNS, runs)
    outliers = {cleaned.used[place]: OUTLIER_WHY for place in interval.outliers}
    used = [index for index in cleaned.used if index not in outliers]
    return Fit(interval, cleaned, used, dict(sorted((cleaned.left_out | outliers).items())))


def bounds_for(history: Sequence[float], better: Better = "lower") -> tuple[float, float] | None:
    """(lower, upper) for one new run after runs with these figures, oldest first; None where nothing is judged."""
    interval = fit_bounds([Past(value) for value in history], better).interval
    if interval.state != "usable" or interval.lower is None or interval.upper is None:
        return None
    return interval.lower, interval.upper
