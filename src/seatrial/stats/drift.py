"""How far log-probabilities of two ways to compute the same moved, and whether that is noise.

Rounding moves them to and fro, by about as much everywhere. What is wrong with a computation moves them to one side,
or in proportion to what they are: a temperature, a scale, a norm."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Drift(NamedTuple):
    """Of all pairs of log-probabilities. `mean_t` and `slope_t` are in standard errors, a position of a text as one
    observation."""

    positions: int
    rms: float
    largest: float
    mean: float  # got less expected
    mean_t: float
    slope: float  # of the move over the log-probability itself, within a position: a temperature has one
    slope_t: float
    slope_share: float  # of what moved within positions: 1 is all of it
    pair_rms: float  # of the move between the two likeliest of a position: what lets them change places


def drift_of(expected: Sequence[float], got: Sequence[float], starts: Sequence[int]) -> Drift:
    """`starts` has the index of each position's first pair; the likeliest token of a position need not be first."""
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
    # From a random pair of each position, here the first and the second: noise does not care which.
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
    """How many of the positions with these gaps between their two likeliest tokens change them, when the move between
    the two is normal with this deviation."""
    if noise <= 0 or not gaps:
        return 0.0
    return float(sum(math.erfc(gap / noise / math.sqrt(2)) for gap in gaps if gap < 8 * noise)) / 2


def poisson_tail(count: int, mean: float) -> float:
    """How likely so many or more are."""
    term, below = math.exp(-mean), 0.0
    for number in range(count):
        below += term
        term *= mean / (number + 1)
    return max(0.0, 1.0 - below)
