"""Compares a metric between two groups of runs: by how much it changed, and how certain that is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from seatrial.stats.bounds import prediction_intervals
from seatrial.stats.student import stdtr, stdtrit

OWN_NOISE_FROM = 5  # runs on each side to estimate each side's own spread; below, spreads are pooled
NOISE_RUNS = 20  # default number of runs behind a given noise
_NO_NOISE = "one run on each side, and no history to estimate the noise from"


@dataclass(frozen=True)
class Difference:
    """Sizes are relative to the level before: 0.05 is 5 % more. None: unknown, for the reason in `why`."""

    before: float | None  # mean without outliers
    after: float | None
    size: float | None = None  # (after - before) / |before|
    low: float | None = None  # confidence interval of the size
    high: float | None = None
    level: float = 0.95  # confidence level of that interval
    sure: float = 0.0  # certainty from 0 to 1 that the level changed: 1 - p of a t test
    n_before: int = 0  # finite values, including outliers
    n_after: int = 0
    why: str = ""


@dataclass(frozen=True)
class _Side:
    n: int  # without outliers
    mean: float
    squares: float  # sum of squared distances from the mean

    def variance(self) -> float:
        return self.squares / (self.n - 1)


def compare(
    before: Sequence[float],
    after: Sequence[float],
    noise: float | None = None,
    noise_runs: int = NOISE_RUNS,
    level: float = 0.95,
) -> Difference:
    """The change from `before` to `after`.

    `noise` is the relative standard deviation of single runs of one level (`relative_noise` of the history), estimated
    from `noise_runs` runs: with it, one run on each side is enough. Without it, the noise is that of the given runs.
    Assumes independent runs, nearly normal without outliers. Some of many comparisons are certain by chance: of 500
    metrics that did not change, about 5 reach 0.99. Raises ValueError for invalid parameters.
    """
    if not (0 < level < 1 and noise_runs >= 2 and (noise is None or 0 <= noise < math.inf)):
        raise ValueError(
            "expected 0 < level < 1, noise_runs >= 2 and a finite noise, "
            f"got level {level}, noise_runs {noise_runs}, noise {noise}"
        )
    finite = [[float(value) for value in values if math.isfinite(value)] for values in (before, after)]
    inner = [_without_outliers(values) for values in finite]
    exponent = _exponent(inner[0] + inner[1])
    left, right = (_side(values, exponent) for values in inner)
    shift, edges, sure, why = None, None, 0.0, ""
    if left is None or right is None:
        missing = " and ".join(word for word, side in (("before", left), ("after", right)) if side is None)
        why = f"no values {missing}"
    else:
        shift = (right.mean - left.mean) / abs(left.mean) if left.mean else None
        spread = _spread(left, right, noise, noise_runs)
        if spread is None:
            why = _NO_NOISE
        else:
            variances, freedom = spread
            difference, error = right.mean - left.mean, math.sqrt(sum(variances))
            sure = 1 - 2 * float(stdtr(freedom, -abs(difference) / error)) if error else float(bool(difference))
            edges = _edges(left.mean, right.mean, variances, float(stdtrit(freedom, (1 + level) / 2)))
            why = "" if edges else "no relative change: the level before is 0, or too close to it"
    return Difference(
        None if left is None else _unscaled(left.mean, exponent),
        None if right is None else _unscaled(right.mean, exponent),
        shift,
        edges[0] if edges else None,
        edges[1] if edges else None,
        level=level,
        sure=sure,
        n_before=len(finite[0]),
        n_after=len(finite[1]),
        why=why,
    )


def relative_noise(values: Sequence[float]) -> float | None:
    """The standard deviation of runs of one level, relative to it and without outliers; None if unknown."""
    inner = _without_outliers([float(value) for value in values if math.isfinite(value)])
    side = _side(inner, _exponent(inner))
    if side is None or side.n < 2 or not side.mean:
        return None
    return math.sqrt(side.variance()) / abs(side.mean)


def _without_outliers(values: list[float]) -> list[float]:
    if len(values) < 2:
        return values
    kept: list[bool] = prediction_intervals(np.asarray([values])).kept[0].tolist()
    return list(compress(values, kept))


def _side(values: list[float], exponent: int) -> _Side | None:
    if not values:
        return None
    scaled = [math.ldexp(value, -exponent) for value in values]
    start = scaled[0]  # distances from it are exact for constants
    mean = start + math.fsum(value - start for value in scaled) / len(scaled)
    return _Side(len(scaled), mean, math.fsum((value - mean) ** 2 for value in scaled))


def _spread(
    left: _Side, right: _Side, noise: float | None, noise_runs: int
) -> tuple[tuple[float, float], float] | None:
    """The variances of both means, and their degrees of freedom; None if unknown."""
    if min(left.n, right.n) >= OWN_NOISE_FROM:
        a, b = left.variance() / left.n, right.variance() / right.n
        share = a / (a + b) if a + b else 0.5
        return (a, b), 1 / (share**2 / (left.n - 1) + (1 - share) ** 2 / (right.n - 1))  # Welch
    squares, freedom = left.squares + right.squares, left.n + right.n - 2
    if noise is not None:
        # Use the larger level, as noise grows with it: too wide is the safer error.
        deviation = noise * max(abs(left.mean), abs(right.mean))
        squares += (noise_runs - 1) * deviation * deviation
        freedom += noise_runs - 1
    if not freedom:
        return None
    variance = squares / freedom
    return (variance / left.n, variance / right.n), freedom


def _edges(before: float, after: float, variances: tuple[float, float], times: float) -> tuple[float, float] | None:
    """Fieller's interval of (after - before) / |before|: it excludes 0 exactly if the t test is significant."""
    inner = before**2 - times**2 * variances[0]
    if inner <= 0:
        return None
    product = before * after
    root = math.sqrt(max(product**2 - inner * (after**2 - times**2 * variances[1]), 0.0))
    low, high = (product - root) / inner - 1, (product + root) / inner - 1
    return (low, high) if before > 0 else (-high, -low)


def _exponent(values: list[float]) -> int:
    """Exponent of the power of two that scales all to within 1 without rounding, so that squares stay in range."""
    return max((math.frexp(value)[1] for value in values if value), default=0)


def _unscaled(value: float, exponent: int) -> float:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)
