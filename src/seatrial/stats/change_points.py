"""Since when a series of figures is on another level: the changes that people would mark in a plot of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seatrial.stats.change_evidence import NEAR_RUNS
from seatrial.stats.change_search import search_changes
from seatrial.stats.change_signal import Floats, Ints, median, signal_of

_LEAST = 0.31  # confidence from which on a change is reported: fewer than one false alarm in 1,000 runs


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """One change of the level."""

    index: int  # the first run after it
    before: float  # the level before, the median of at most 40 runs
    after: float
    size: float  # relative to the level before: 0.05 is 5 % more; infinite after a level of 0
    confidence: float  # 0 to 1: how likely at least half of the people who look at the series would mark it


def change_points(values: Sequence[float] | Floats) -> list[ChangePoint]:
    """The changes in `values` (one figure per run, oldest first), oldest first.

    1. The result depends on the values alone. It is the same for `a * values + b`, `a` > 0, but for levels and sizes.
    2. Values that are not finite are passed over; all others keep their index.
    3. Isolated spikes and slow drifts are not changes. A change needs at least two runs on either side, and
       with so few it has to be very large.
    """
    given = np.asarray(values, dtype=np.float64)
    kept = np.flatnonzero(np.isfinite(given))
    finite = given[kept]
    signal = signal_of(finite)
    if signal is None:
        return []
    places, confidences = search_changes(signal, _LEAST)
    return describe(finite, places, confidences, kept)


def describe(values: Floats, places: Ints, confidences: Floats, index: Ints) -> list[ChangePoint]:
    """Changes at `places` of `values`, with levels from both sides of each up to the next change."""
    bounds = [0, *places.tolist(), len(values)]
    changes = []
    for k, confidence in enumerate(confidences.tolist(), 1):
        left, at, right = bounds[k - 1 : k + 2]
        before = median(values[max(left, at - NEAR_RUNS) : at])
        after = median(values[at : min(right, at + NEAR_RUNS)])
        changes.append(ChangePoint(int(index[at]), before, after, _relative(before, after), confidence))
    return changes


def _relative(before: float, after: float) -> float:
    if before == 0.0:
        return float(np.sign(after)) * float("inf") if after else 0.0
    # Not (after - before): that can leave the range of a float.
    return after / abs(before) - (1.0 if before > 0 else -1.0)
