"""Finds level changes in a series, each with the probability that most people would mark it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

SPIKE_RUNS = 7  # window of the median that spikes are compared with: up to three runs in a row are ignored
SPIKE_SIZE = 5.0  # distance of a spike from that median, in units of the noise
MAD_TO_SD = 1.4826
QUIETEST = 1e-3  # minimum noise as a share of the spread: less is invisible in a plot
FARTHEST = 1e4  # values are clipped at this multiple of the noise, so that sums of squares keep their digits


@dataclass(frozen=True)
class Signal:
    """Input of the search, independent of scale and level: `a * values + b` gives the same signal."""

    raw: Floats  # in units of the noise, the median at 0
    sums: Floats  # running sums of the values without spikes, starting with 0
    squares: Floats  # running sums of their squares
    moments: Floats  # running sums of value * position
    jumps: Floats  # running sums of squared differences between neighbours
    spread: float  # from the 0.5th to the 99.5th percentile of `raw`, the height of a plot

    def __len__(self) -> int:
        return len(self.raw)


def signal_of(values: Floats) -> Signal | None:
    """The signal of finite values; None if no change is possible (fewer than four values, or all equal)."""
    if len(values) < 4:
        return None
    # Scale first, so that sums and squares neither overflow nor vanish.
    largest = float(np.abs(values).max())
    if largest == 0.0:
        return None
    scaled = values / largest
    spread = _height(scaled)
    if spread == 0.0:
        spread = float(scaled.max() - scaled.min())  # all but a few runs are equal
    if spread <= 1e-12:  # only rounding errors
        return None
    scaled = scaled - median(scaled)
    calm = _without_spikes(scaled)
    steps = np.diff(calm)  # differences of neighbours, so that level changes do not count
    noise = max((MAD_TO_SD * median(np.abs(steps)) or float(np.std(steps))) / 2**0.5, QUIETEST * spread)
    calm = np.clip(calm / noise, -FARTHEST, FARTHEST)
    return Signal(
        raw=scaled / noise,
        sums=_running(calm),
        squares=_running(calm * calm),
        moments=_running(calm * np.arange(len(calm))),
        jumps=_running(np.diff(calm) ** 2),
        spread=spread / noise,
    )


def _without_spikes(values: Floats) -> Floats:
    half = SPIKE_RUNS // 2
    around = np.sort(sliding_window_view(np.pad(values, half, mode="edge"), SPIKE_RUNS), axis=1)[:, half]
    off = np.abs(values - around)
    scale = MAD_TO_SD * median(off)
    if scale == 0.0:  # most runs equal their neighbours, as with a coarse clock
        some = off[off > 0]
        if not len(some):
            return values
        scale = MAD_TO_SD * median(some)
    return np.where(off > SPIKE_SIZE * scale, around, values)


def _height(values: Floats) -> float:
    """The distance from the 0.5th to the 99.5th percentile, interpolated."""
    low, high = np.percentile(values, (0.5, 99.5))
    return float(high - low)


def median(values: Floats) -> float:
    """Like np.median, but faster for short arrays."""
    middle = len(values) // 2
    if len(values) % 2:
        return float(np.partition(values, middle)[middle])
    pair = np.partition(values, (middle - 1, middle))
    return float(pair[middle - 1]) / 2 + float(pair[middle]) / 2  # the sum could overflow


def _running(values: Floats) -> Floats:
    return np.concatenate(([0.0], np.cumsum(values)))


NEAR_RUNS = 40  # on either side, for ranks, size and abruptness
FAR_RUNS = 100  # on either side, for the t statistic
FAR_LEVEL = 3.0  # levels beyond the neighbours farther away than this, in sizes of the change, are equally far
QUIET = 0.2**2  # minimum variance within a segment, in units of the noise's variance
FEWEST, MOST = 200, 3_000  # lengths of the series in the training data; others are clipped

BLOCK = 1_024  # changes compared at once, which limits memory

# Learned from 94 real series, each labelled by 5 to 7 people; bench/changes_fit.py learns them again, docs/changes.md
# has the results. One weight per feature below, in the same order.
INTERCEPT = -3.31
WEIGHTS = (5.04, 1.27, 1.18, 1.73, -1.03, -0.03, -0.14)


def features(signal: Signal, left: Ints, at: Ints, right: Ints) -> Floats:
    """One row per change at `at`, between segments that begin at `left` and end before `right`:

    1. ranks: separation of the runs before and after, for any distribution (Mann-Whitney's z);
    2. t: certainty of the difference of the levels, over more runs, reduced for autocorrelated noise;
    3. size: relative to a plot of the whole series;
    4. abruptness: 1 for a step, 0 for the middle of a slope;
    5. runs: length of the series, because longer ones have more changes by chance;
    6. return: distance of the level before `left` from that after the change, in units of its size: 0 if a level that
       was left before the previous change comes back, 1 if there is no previous change;
    7. revert: the same for the level after `right` and that before the change.
    """
    t, _, variance = t_statistic(signal, left, at, right, FAR_RUNS)
    t *= _independence(signal, left, at, right, variance)
    _, step, _ = t_statistic(signal, left, at, right, NEAR_RUNS)
    near_left, near_right = np.maximum(left, at - NEAR_RUNS), np.minimum(right, at + NEAR_RUNS)
    edge = np.asarray(at - 0.5, dtype=np.float64)
    jump = _line(signal, at, near_right, edge) - _line(signal, near_left, at, edge)
    size = np.abs(step)
    before, after = _level(signal, near_left, at), _level(signal, at, near_right)
    farther = np.where(left > 0, _level(signal, np.maximum(left - NEAR_RUNS, 0), left), before)
    later = np.where(right < len(signal), _level(signal, right, np.minimum(right + NEAR_RUNS, len(signal))), after)
    rows = np.empty((len(at), 7))
    rows[:, 0] = np.log(_rank_z(signal.raw, near_left, at, near_right) + 0.3)
    rows[:, 1] = np.log(np.abs(t) + 0.5)
    rows[:, 2] = np.log(size / signal.spread + 0.01)
    rows[:, 3] = np.clip(jump * np.sign(step) / (size + 1e-9), -0.5, 2.0)
    rows[:, 4] = np.log(min(max(len(signal), FEWEST), MOST))
    rows[:, 5] = np.minimum(np.abs(farther - after) / (size + 1e-9), FAR_LEVEL)
    rows[:, 6] = np.minimum(np.abs(later - before) / (size + 1e-9), FAR_LEVEL)
    return rows


def _level(signal: Signal, begin: Ints, end: Ints) -> Floats:
    """The mean of the runs from `begin` to before `end`; 0 if there are none."""
    return np.asarray((signal.sums[end] - signal.sums[begin]) / np.maximum(end - begin, 1))


def likelihood(rows: Floats) -> Floats:
    """The probability that at least half of the people who see the series would mark a change here."""
    return np.asarray(1.0 / (1.0 + np.exp(-(INTERCEPT + rows @ np.array(WEIGHTS)))))


def t_statistic(signal: Signal, left: Ints, at: Ints, right: Ints, runs: int) -> tuple[Floats, Floats, Floats]:
    """Student's t of the levels of at most `runs` runs before and after, their difference, and the variance within."""
    left, right = np.maximum(left, at - runs), np.minimum(right, at + runs)
    before, after = at - left, right - at
    sums, squares = signal.sums, signal.squares
    middle = sums[at]
    sum_before, sum_after = middle - sums[left], sums[right] - middle
    mean_before, mean_after = sum_before / before, sum_after / after
    inside = squares[right] - squares[left] - sum_before * mean_before - sum_after * mean_after
    variance = np.maximum(inside, 0.0) / np.maximum(before + after - 2, 1) + QUIET
    step = mean_after - mean_before
    return step / np.sqrt(variance * (1.0 / before + 1.0 / after)), step, variance


def _independence(signal: Signal, left: Ints, at: Ints, right: Ints, variance: Floats) -> Floats:
    """Factor on t for autocorrelated noise: 1 for independent runs, else less (von Neumann's ratio)."""
    left, right = np.maximum(left, at - FAR_RUNS), np.minimum(right, at + FAR_RUNS)
    jumps = signal.jumps
    rough = jumps[at - 1] - jumps[left] + jumps[right - 1] - jumps[at]
    memory = np.clip(1.0 - rough / 2 / np.maximum(right - left - 2, 1) / variance, 0.0, 0.95)
    return np.asarray(np.sqrt((1.0 - memory) / (1.0 + memory)))


def _line(signal: Signal, begin: Ints, end: Ints, where: Floats) -> Floats:
    """The value at `where` of a line fitted to the runs from `begin` to before `end`."""
    runs = end - begin
    total = signal.sums[end] - signal.sums[begin]
    middle = (begin + end - 1) / 2
    along = signal.moments[end] - signal.moments[begin] - middle * total
    slope = np.where(runs >= 8, along / np.maximum(runs * (runs * runs - 1.0) / 12, 1.0), 0.0)
    return np.asarray(total / runs + slope * (where - middle))


def _rank_z(values: Floats, left: Ints, at: Ints, right: Ints) -> Floats:
    """The absolute value of Mann-Whitney's z."""
    one, other = at - left, right - at
    blocks = [slice(first, first + BLOCK) for first in range(0, len(at), BLOCK)]
    lead = np.concatenate([_lead(values, left[block], at[block], right[block]) for block in blocks])
    return np.asarray(np.abs(lead) / 2 / np.sqrt(one * other * (one + other + 1) / 12))


def _lead(values: Floats, left: Ints, at: Ints, right: Ints) -> Ints:
    """Pairs in which the later run is larger, minus pairs in which the earlier is."""
    offsets = np.arange(NEAR_RUNS)
    before, after = at[:, None] - 1 - offsets, at[:, None] + offsets
    # Comparisons with NaN are false, so runs outside the segment do not count.
    first = np.where(before >= left[:, None], values[np.maximum(before, 0)], np.nan)[:, None, :]
    second = np.where(after < right[:, None], values[np.minimum(after, len(values) - 1)], np.nan)[:, :, None]
    larger = np.count_nonzero(second > first, axis=(1, 2))
    return np.asarray(larger - np.count_nonzero(second < first, axis=(1, 2)))


SCAN_RUNS = (6, 12, 25)  # windows on either side: small for short segments, large for noisy ones
SCAN_T = 4.0  # a local maximum of t above this is a candidate
WEAK_T, WEAK_RUNS = 3.5, 50  # candidates below this are dropped before the expensive features
MOVE, MOVE_RUNS = 10, 20  # how far a candidate may move to the best split, and the runs per side to find it

Score = Callable[[Ints, Ints, Ints], Floats]  # (left, at, right) -> scores
Least = Callable[[int], float]  # number of changes -> minimum score


def candidates(signal: Signal) -> Ints:
    """Local maxima of t in several windows, without weak ones, each moved to its best split."""

    def strength(left: Ints, at: Ints, right: Ints) -> Floats:
        return np.abs(t_statistic(signal, left, at, right, WEAK_RUNS)[0])

    places, _ = prune(_scan(signal), len(signal), strength, lambda _: WEAK_T)
    places, _ = prune(_moved(signal, places), len(signal), strength, lambda _: WEAK_T)
    return places


def prune(places: Ints, end: int, score: Score, least: Least) -> tuple[Ints, Floats]:
    """Repeatedly removes changes that score less than `least` of their number and less than both neighbours.

    A removal makes the adjacent segments longer, so the neighbours are scored again.
    """
    scores = score(*_between(places, end)) if len(places) else np.empty(0)
    while len(places):
        around = np.concatenate(([np.inf], scores, [np.inf]))
        weak = (scores < least(len(places))) & (scores <= around[:-2]) & (scores < around[2:])
        if not weak.any():
            break
        keep = ~weak
        adjacent = np.zeros(len(places), dtype=bool)
        adjacent[:-1] |= weak[1:]
        adjacent[1:] |= weak[:-1]
        places, scores, adjacent = places[keep], scores[keep], adjacent[keep]
        if adjacent.any():
            left, at, right = _between(places, end)
            scores[adjacent] = score(left[adjacent], at[adjacent], right[adjacent])
    return places, scores


def _between(places: Ints, end: int) -> tuple[Ints, Ints, Ints]:
    bounds = np.concatenate(([0], places, [end]))
    return bounds[:-2], bounds[1:-1], bounds[2:]


def _scan(signal: Signal) -> Ints:
    end = len(signal)
    at = np.arange(2, end - 1)
    found = [np.empty(0, dtype=np.intp)]
    for runs in SCAN_RUNS:
        reach = max(2, runs // 3)
        t = np.zeros(end + 2 * reach)
        t[at + reach] = np.abs(t_statistic(signal, np.zeros_like(at), at, np.full_like(at, end), runs)[0])
        high = np.flatnonzero(t > SCAN_T)
        around = t[high[:, None] + np.arange(-reach, reach + 1)]
        found.append(high[t[high] >= around.max(axis=1, initial=0.0)] - reach)
    return np.unique(np.concatenate(found))


def _moved(signal: Signal, places: Ints) -> Ints:
    """Moves each change to the best split within its two segments."""
    if not len(places):
        return places
    left, at, right = (side[:, None] for side in _between(places, len(signal)))
    left, right = np.maximum(left, at - MOVE_RUNS), np.minimum(right, at + MOVE_RUNS)
    tried = np.clip(at + np.arange(-MOVE, MOVE + 1), left + 1, right - 1)
    sums = signal.sums
    middle = sums[tried]
    explained = (middle - sums[left]) ** 2 / (tried - left) + (sums[right] - middle) ** 2 / (right - tried)
    return np.unique(np.take_along_axis(tried, explained.argmax(axis=1)[:, None], axis=1)[:, 0])


LEAST = 0.18  # minimum confidence of a reported change if it is the only one
RISE = 0.34  # its odds rise with this power of the number of changes: a series with many is noisy
SHORT = 8  # series shorter than those learned from need as much confidence as one with this many changes


def least_confidence(changes: int, runs: int, least: float = LEAST, rise: float = RISE) -> float:
    """The minimum confidence of each of so many changes in a series of so many runs."""
    odds = least / (1 - least) * (max(changes, SHORT) if runs < FEWEST else changes) ** rise
    return float(odds / (1 + odds))


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change of the level."""

    index: int  # of the first run after the change
    before: float  # median of at most 40 runs
    after: float
    size: float  # relative to the level before: 0.05 is 5 % more; infinite after a level of 0
    confidence: float  # 0 to 1: probability that at least half of the people who see the series would mark it


def change_points(values: Sequence[float] | Floats) -> list[ChangePoint]:
    """The changes in `values` (one metric per run, oldest first), oldest first.

    1. The result depends only on the values. Except for levels and sizes it is the same for `a * values + b`, `a` > 0.
    2. Values that are not finite are ignored; all others keep their index.
    3. Isolated spikes and slow drifts are not changes. A change needs at least two runs on either side, and must be
       very large with so few.
    """
    given = np.asarray(values, dtype=np.float64)
    kept = np.flatnonzero(np.isfinite(given))
    finite = given[kept]
    signal = signal_of(finite)
    if signal is None:
        return []

    def chance(left: Ints, at: Ints, right: Ints) -> Floats:
        return likelihood(features(signal, left, at, right))

    least = partial(least_confidence, runs=len(signal))
    places, confidences = prune(candidates(signal), len(signal), chance, least)
    changes = []
    for left, at, right, confidence in zip(*_between(places, len(signal)), confidences.tolist(), strict=True):
        # Levels extend to the neighbouring changes.
        before = median(finite[max(left, at - NEAR_RUNS) : at])
        after = median(finite[at : min(right, at + NEAR_RUNS)])
        if before:
            size = after / abs(before) - (1.0 if before > 0 else -1.0)  # after - before could overflow
        else:
            size = float(np.sign(after)) * float("inf") if after else 0.0
        changes.append(ChangePoint(int(kept[at]), before, after, size, confidence))
    return changes
