"""Bounds for one new run from earlier runs: a prediction interval that is robust to outliers.

The method, for n runs and a false-alarm rate p:
1. A generalised ESD test removes outliers. Runs are sorted by their distance from the median. The first run that
   differs from all nearer ones at level OUTLIER / (2 x their number), by Student's t, is left out with all that are
   farther: at most one run in ten (rounded up). If more differ, the metric is noisy and the interval becomes wide. No
   run within the floor around the median is an outlier. Below five runs none is left out.
2. The interval of the rest is mean +- t(1 - p/2, n-1) x s x sqrt(1 + 1/n), exact for one new normal value at any n.
3. It is never narrower than the floor.

Repeats within a run are not independent, so n counts runs. With repeats there are two variances, between the means of
runs and within runs. The interval is for one value of a new run. Outliers are removed among the values of each run,
then among the means.

p assumes normal noise. Real metrics have heavier tails, which no history of 20 runs shows: in quiet parts of 94 real
series, 24 of 1,000 single runs were out of bounds, where p predicts 5. So alerts are confirmed by a second run
(`confirm`): two in a row were out on the same side in at most 2 of 1,000. FALSE_ALARM and OUTLIER are chosen for that
pair. docs/baselines.md has the numbers; bench/bounds.py measures them again.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from seatrial.stats.clean import Better, Cleaned, Past, clean_series
from seatrial.stats.student import stdtrit

IntervalState = Literal["usable", "recording", "unusable"]
_Floats = NDArray[np.float64]

FALSE_ALARM = 0.005  # rate for one good run with normal noise, both sides together
OUTLIER = 0.0001  # level of the outlier test, low because what is common among real runs will occur again
MEASURED = "94 real series, quiet parts: 24 in 1,000 runs out of bounds, 2 in 1,000 with one confirming run"
FLOOR = 0.015  # minimum half-width, as a share of the center
CAP = 0.2  # maximum half-width, as a share of the center: a wider interval would miss most regressions
LEAST_RUNS = 5  # runs
OUTLIERS_FROM = 5  # minimum number of runs to identify outliers
OUTLIERS_SHARE = 10  # at most one run in this many is an outlier


@dataclass(frozen=True)
class Interval:
    """A bound for one new run. With state `usable`, lower <= center <= upper, and all are finite.

    `lower`, `upper` and `half_width` are None while recording and if a float cannot represent them. `center` is None
    without runs.
    """

    lower: float | None
    upper: float | None
    center: float | None
    half_width: float | None
    n: int  # runs used
    method: str  # description for users
    false_alarm: float  # share of good runs with normal noise that are out of bounds; less if the floor widened them
    state: IntervalState
    why: str  # reason if the state is not usable
    outliers: tuple[int, ...] = ()  # indexes of the given values
    not_finite: tuple[int, ...] = ()  # indexes of nan and inf


@dataclass(frozen=True)
class Intervals:
    """The intervals of many series of the same length, as arrays with one element per series; without states."""

    center: _Floats
    half_width: _Floats
    n: NDArray[np.int64]  # runs used for each
    kept: NDArray[np.bool_]  # in the shape of the input: True if not an outlier
    floored: NDArray[np.bool_]  # whether the floor determines the width


def prediction_interval(
    values: Sequence[float],
    false_alarm: float = FALSE_ALARM,
    floor: float = FLOOR,
    cap: float = CAP,
    least: int = LEAST_RUNS,
    runs: Sequence[Hashable] | None = None,
) -> Interval:
    """The interval that contains one value of one more run with probability 1 - false_alarm.

    `runs` names the run of each value, if runs have several. Assumes that runs are independent, of one level (see
    `clean`), and nearly normal without outliers; heavy tails raise more false alarms. Values that are not finite are
    left out and listed. Raises ValueError for invalid parameters.
    """
    if not (0 < false_alarm < 1 and 0 <= floor <= cap and cap > 0 and least >= 2):
        raise ValueError(
            f"expected 0 < false_alarm < 1, 0 <= floor <= cap, cap > 0 and least >= 2, "
            f"got false_alarm {false_alarm}, floor {floor}, cap {cap}, least {least}"
        )
    given = np.asarray(values, dtype=np.float64).reshape(-1)
    finite = np.isfinite(given)
    not_finite = tuple(np.flatnonzero(~finite).tolist())
    row = given[finite]
    numbers: dict[Hashable, int] = {}
    numbered = range(len(given)) if runs is None else [numbers.setdefault(run, len(numbers)) for run in runs]
    run_of = np.array(numbered, dtype=np.intp)[finite]
    count = len(row) if runs is None else len(np.unique(run_of))
    if count < 2:
        center = float(np.median(row)) if count else None
        why = _recording(count, least, 0, len(not_finite))
        return Interval(None, None, center, None, count, "none yet", false_alarm, "recording", why, (), not_finite)
    repeats = count < len(row)
    fit = (
        _of_repeats(row, run_of, false_alarm, floor) if repeats else prediction_intervals(row[None], false_alarm, floor)
    )
    n, center, half = int(fit.n[0]), float(fit.center[0]), float(fit.half_width[0])
    outliers = tuple(np.flatnonzero(finite)[~fit.kept[0]].tolist())
    if n < least:
        why = _recording(n, least, len(outliers), len(not_finite))
        return Interval(None, None, center, None, n, "none yet", false_alarm, "recording", why, outliers, not_finite)
    lower, upper = center - half, center + half
    if math.isfinite(lower) and math.isfinite(upper):
        why = _unusable(center, half, cap)
    else:
        why = f"bounds around {center:.4g} exceed the range of a float; use a larger unit"
    method = "prediction interval (Student's t)"
    if outliers:
        what, kind = "values" if repeats else "runs", "an outlier" if len(outliers) == 1 else "outliers"
        method += f", {len(outliers)} of {len(row)} {what} left out as {kind}"
    if fit.floored[0]:
        method += f", widened to the floor of {_percent(floor)}"
    return Interval(
        lower if math.isfinite(lower) else None,
        upper if math.isfinite(upper) else None,
        center,
        half if math.isfinite(half) else None,
        n,
        method,
        false_alarm,
        "unusable" if why else "usable",
        why,
        outliers,
        not_finite,
    )


def moved_half_width(half: float, runs: int | None, moved_before: bool, new_runs: int) -> float:
    """Converts a half-width around the mean of `runs` (their median if `moved_before`) to one around the median of
    `new_runs`: the center of fewer runs is less certain."""
    if not runs:  # written by hand
        return half
    return half * math.sqrt((1 + _median_error(new_runs)) / (1 + (_median_error(runs) if moved_before else 1 / runs)))


def _median_error(runs: int) -> float:
    """The variance of the median of normal values, relative to theirs: 1 for one value, pi / 2n for many."""
    return 1 / (1 + (runs - 1) * 2 / math.pi)


def prediction_intervals(matrix: NDArray[Any], false_alarm: float = FALSE_ALARM, floor: float = FLOOR) -> Intervals:
    """The same for many series of n >= 2 finite values, one per row. Raises ValueError."""
    if not (0 < false_alarm < 1 and floor >= 0):
        raise ValueError(f"expected 0 < false_alarm < 1 and floor >= 0, got false_alarm {false_alarm}, floor {floor}")
    x = np.asarray(matrix, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] < 2 or not np.isfinite(x).all():
        raise ValueError(f"expected rows of at least two finite values, got an array of shape {x.shape}")
    with np.errstate(all="ignore"):  # overflow becomes inf and 0/0 nan; both are handled
        order, n = _nearest(x, floor)
        kept = np.empty(x.shape, dtype=np.bool_)
        np.put_along_axis(kept, order, np.arange(x.shape[1]) < n[:, np.newaxis], axis=1)
        anchor = np.take_along_axis(x, order[:, :1], axis=1)
        center, spread = _center_and_spread(x, kept, n, anchor)
        half = stdtrit(n - 1.0, 1 - false_alarm / 2) * spread * np.sqrt(1 + 1 / n)
        least_half = floor * np.abs(center)
    return Intervals(center, np.maximum(half, least_half), n, kept, least_half > half)


def _of_repeats(row: _Floats, run_of: NDArray[np.intp], false_alarm: float, floor: float) -> Intervals:
    """The interval of one series with several values per run, as an array of one."""
    exponent = int(_exponent(row[None])[0, 0])
    x = np.ldexp(row, -exponent)
    run_of = np.unique(run_of, return_inverse=True)[1]
    numbers = np.arange(run_of.max() + 1)
    middles = np.array([np.median(x[run_of == number]) for number in numbers])
    kept = prediction_intervals((np.median(middles) + x - middles[run_of])[None], floor=floor).kept[0]
    kept[~np.isin(run_of, run_of[kept])] = True  # if all values of a run seem to be outliers, none is
    metrics = np.bincount(run_of[kept])
    means = np.bincount(run_of[kept], x[kept]) / metrics
    good = prediction_intervals(means[None], floor=floor).kept[0]
    kept &= good[run_of]
    metrics, n = metrics[good], int(good.sum())
    center = means[good].mean()
    between = means[good].var(ddof=1)
    freedom = int(metrics.sum()) - n
    within = ((x - means[run_of])[kept] ** 2).sum() / max(freedom, 1)
    # The mean of a run varies less than a single value; add the missing variance within runs.
    parts = between * (1 + 1 / n), within * (1 - (1 / metrics).mean())
    variance = sum(parts)
    share = parts[0] / variance if variance else 1.0
    both = 1 / (share**2 / (n - 1) + (1 - share) ** 2 / max(freedom, 1))  # Satterthwaite
    half = float(stdtrit(both, 1 - false_alarm / 2)) * math.sqrt(variance)
    least_half = floor * abs(center)
    with np.errstate(over="ignore"):
        return Intervals(
            np.ldexp([center], exponent),
            np.ldexp([max(half, least_half)], exponent),
            np.array([n]),
            kept[None],
            np.array([least_half > half]),
        )


def _nearest(x: _Floats, floor: float) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """For each row, the indexes of its values by distance from the median, and how many of these are not outliers."""
    rows, n = x.shape
    scaled = np.ldexp(x, -_exponent(x))
    middle = np.median(scaled, axis=1, keepdims=True)
    off = scaled - middle
    order = np.argsort(np.abs(off), axis=1, kind="stable")
    most = -(-n // OUTLIERS_SHARE) if n >= OUTLIERS_FROM else 0
    if not most:
        return order, np.full(rows, n)
    near = np.take_along_axis(off, order, axis=1)
    sizes, limits = _limits(n, most)
    # Sum from the middle outwards, so that a huge outlier costs the others no digits.
    mean = np.cumsum(near, axis=1)[:, sizes - 1] / sizes
    squares = np.cumsum(near * near, axis=1)[:, sizes - 1]
    variance = np.maximum(squares - mean * mean * sizes, 0) / (sizes - 1)
    stands_off = np.abs(near[:, sizes] - mean) / np.sqrt(variance * (1 + 1 / sizes)) > limits
    stands_off &= np.abs(near[:, sizes]) > floor * np.abs(middle)
    return order, np.where(stands_off.any(axis=1), sizes[stands_off.argmax(axis=1)], n)


@lru_cache(maxsize=1024)
def _limits(n: int, most: int) -> tuple[NDArray[np.int64], _Floats]:
    """Sizes of the tested inner sets, smallest first, and the limit on t for the next value."""
    sizes = np.arange(n - most, n)
    return sizes, np.asarray(stdtrit(sizes - 1.0, 1 - OUTLIER / (2 * (sizes + 1))))


def _center_and_spread(
    x: _Floats, kept: NDArray[np.bool_], n: NDArray[np.int64], anchor: _Floats
) -> tuple[_Floats, _Floats]:
    """Mean and standard deviation of kept values, exact for constants and safe for 1e-300 and 1e300."""
    inner = np.where(kept, x, anchor)
    exponent = _exponent(inner)
    start = np.ldexp(anchor, -exponent)
    off = np.ldexp(inner, -exponent) - start
    mean = off.sum(axis=1) / n
    rest = np.where(kept, off - mean[:, np.newaxis], 0)
    spread = np.sqrt((rest * rest).sum(axis=1) / (n - 1))
    return np.ldexp(start[:, 0] + mean, exponent[:, 0]), np.ldexp(spread, exponent[:, 0])


def _exponent(x: _Floats) -> NDArray[np.int32]:
    """Exponent of the power of two that scales each row to within 1 without rounding."""
    exponent: NDArray[np.int32] = np.frexp(np.abs(x).max(axis=1, keepdims=True))[1]
    return exponent


def _recording(n: int, least: int, outliers: int, not_finite: int) -> str:
    left_out = [_count(outliers, "outlier")] if outliers else []
    left_out += [f"{not_finite} not finite"] if not_finite else []
    tail = f" ({', '.join(left_out)} left out)" if left_out else ""
    return f"{n} of {_count(least, 'run')} needed for a bound{tail}"


def _unusable(center: float, half: float, cap: float) -> str:
    if half <= cap * abs(center):
        return ""
    if center == 0:
        return "the runs scatter around 0, where a relative width is meaningless; write bounds by hand"
    return f"too noisy: good runs need bounds of ±{_percent(half / abs(center))}, and the cap is ±{_percent(cap)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _percent(share: float) -> str:
    return f"{share * 100:,.0f} %" if share >= 10 else f"{share * 100:.3g} %"


OUTLIER_WHY = "outlier"


@dataclass(frozen=True)
class Fit:
    """Bounds and the runs they come from. Every index is either in `used` or in `left_out`."""

    interval: Interval
    cleaned: Cleaned
    used: list[int]  # oldest first
    left_out: dict[int, str]  # index -> reason, including outliers


def fit_bounds(
    points: Sequence[Past], better: Better, false_alarm: float = FALSE_ALARM, floor: float = FLOOR, cap: float = CAP
) -> Fit:
    """The interval for one value of a new run after `points` (one series, oldest first).

    Baselines, reports and benchmarks all call this, so that their bounds agree."""
    cleaned = clean_series(points, better)
    kept = [points[index] for index in cleaned.used]
    runs = [past.run or index for index, past in zip(cleaned.used, kept, strict=True)]
    interval = prediction_interval([past.value for past in kept], false_alarm, floor, cap, LEAST_RUNS, runs)
    outliers = {cleaned.used[place]: OUTLIER_WHY for place in interval.outliers}
    used = [index for index in cleaned.used if index not in outliers]
    return Fit(interval, cleaned, used, dict(sorted((cleaned.left_out | outliers).items())))


def bounds_for(history: Sequence[float], better: Better = "lower") -> tuple[float, float] | None:
    """(lower, upper) for one new run after runs with these values, oldest first; None if there are no usable bounds."""
    interval = fit_bounds([Past(value) for value in history], better).interval
    if interval.state != "usable" or interval.lower is None or interval.upper is None:
        return None
    return interval.lower, interval.upper
