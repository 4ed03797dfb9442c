"""How far log-probabilities differ between two computations of the same model, and whether that is noise.

Rounding moves them in both directions by similar amounts. An error in a computation (a temperature, a scale, a norm)
moves them in one direction, or in proportion to their size."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Drift(NamedTuple):
    """Differences over all pairs of log-probabilities. `mean_t` and `slope_t` are in standard errors, with each
    position as one observation."""

    positions: int
    rms: float
    largest: float
    mean: float  # got minus expected
    mean_t: float
    slope: float  # of the difference against the log-probability, within a position: nonzero for a wrong temperature
    slope_t: float
    slope_share: float  # share of the variation within positions that the slope explains
    pair_rms: float  # rms of the change between two tokens of a position, which can swap the most likely ones


def drift_of(expected: Sequence[float], got: Sequence[float], starts: Sequence[int]) -> Drift:
    """`starts` has the index of each position's first pair; the most likely token of a position need not be first."""
    if not starts:
        return Drift(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    x = np.asarray(expected, dtype=float)
    moved = np.asarray(got, dtype=float) - x
    first = np.asarray(starts, dtype=np.intp)
    sizes = np.diff(np.append(first, len(x)))
    means = np.add.reduceat(moved, first) / sizes
    centered = x - np.repeat(np.add.reduceat(x, first) / sizes, sizes)
    within = moved - np.repeat(means, sizes)
    sxx, sxd = np.add.reduceat(centered * centered, first), np.add.reduceat(centered * within, first)
    slope = _ratio(float(sxd.sum()), float(sxx.sum()))
    sdd = float((within * within).sum())
    error = math.sqrt(float(np.square(sxd - slope * sxx).sum()))
    spread = float(means.std()) / math.sqrt(len(means))
    # Any pair of tokens of a position will do for noise; take the first and the second.
    pairs = first[sizes > 1]
    pair_moves = moved[pairs] - moved[pairs + 1]
    return Drift(
        positions=len(first),
        rms=math.sqrt(float(np.square(moved).mean())),
        largest=float(np.abs(moved).max()),
        mean=float(means.mean()),
        mean_t=_ratio(float(means.mean()), spread),
        slope=slope,
        slope_t=_ratio(float(sxd.sum()), error),
        slope_share=_ratio(slope * float(sxd.sum()), sdd),
        pair_rms=math.sqrt(float(np.square(pair_moves).mean())) if len(pairs) else 0.0,
    )


def _ratio(over: float, under: float) -> float:
    return over / under if under > 0 else math.copysign(math.inf, over) if over else 0.0


def expected_flips(gaps: Sequence[float], noise: float) -> float:
    """Expected number of positions whose two most likely tokens swap, given the gaps between them and normal
    noise with this standard deviation."""
    if noise <= 0 or not gaps:
        return 0.0
    return float(sum(math.erfc(gap / noise / math.sqrt(2)) for gap in gaps if gap < 8 * noise)) / 2


def poisson_tail(count: int, mean: float) -> float:
    """The probability of `count` or more events."""
    term, below = math.exp(-mean), 0.0
    for number in range(count):
        below += term
        term *= mean / (number + 1)
    return max(0.0, 1.0 - below)
