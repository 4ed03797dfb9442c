"""What speaks for a change between two runs, as one number: how likely most people who see the series mark it."""

import numpy as np

from seatrial.stats.change_signal import Floats, Ints, Signal

NEAR_RUNS = 40  # on either side, for ranks, size and abruptness
FAR_RUNS = 100  # on either side, for the t statistic
QUIET = 0.2**2  # the least variance inside a segment, in units of the noise's
FEWEST, MOST = 200, 3_000  # lengths of series that the weights were learned from; others count as the nearest

BLOCK = 1_024  # changes whose ranks are compared at once, which bounds the memory

# Learned from 94 real series that 5 to 7 people each had labelled; bench/changes_fit.py learns them again from such
# data, docs/changes.md has the figures. One weight for each feature below, in its order.
INTERCEPT = -3.58
WEIGHTS = (5.44, 1.26, 1.34, 1.84, -1.10)


def features(signal: Signal, left: Ints, at: Ints, right: Ints) -> Floats:
    """One row for each change at `at` between the segments that begin at `left` and end before `right`.

    1. ranks: how well the runs before and after are apart, whatever their distribution (Mann-Whitney's z);
    2. t: how sure the difference of the two levels is, over more runs, less where the noise has a memory;
    3. size: how large it is in a plot of the whole series;
    4. abruptness: 1 for a step, 0 for the middle of a slope;
    5. runs: the longer the series, the more would look like a change by chance.
    """
    t, _, variance = t_statistic(signal, left, at, right, FAR_RUNS)
    t *= _independence(signal, left, at, right, variance)
    _, step, _ = t_statistic(signal, left, at, right, NEAR_RUNS)
    near_left, near_right = np.maximum(left, at - NEAR_RUNS), np.minimum(right, at + NEAR_RUNS)
    edge = np.asarray(at - 0.5, dtype=np.float64)
    jump = _line(signal, at, near_right, edge) - _line(signal, near_left, at, edge)
    size = np.abs(step)
    rows = np.empty((len(at), 5))
    rows[:, 0] = np.log(_rank_z(signal.raw, near_left, at, near_right) + 0.3)
    rows[:, 1] = np.log(np.abs(t) + 0.5)
    rows[:, 2] = np.log(size / signal.spread + 0.01)
    rows[:, 3] = np.clip(jump * np.sign(step) / (size + 1e-9), -0.5, 2.0)
    rows[:, 4] = np.log(min(max(len(signal), FEWEST), MOST))
    return rows


def likelihood(rows: Floats) -> Floats:
    """The probability that at least half of the people who look at the series mark a change here."""
    return np.asarray(1.0 / (1.0 + np.exp(-(INTERCEPT + rows @ np.array(WEIGHTS)))))


def t_statistic(signal: Signal, left: Ints, at: Ints, right: Ints, runs: int) -> tuple[Floats, Floats, Floats]:
    """Student's t of the levels of at most `runs` runs before and after, their difference, the variance inside."""
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
    """What is left of t where each run resembles the one before: 1 without such memory, else less.

    White noise differs from run to run by twice its variance; noise that remembers, by less (von Neumann's ratio).
    """
    left, right = np.maximum(left, at - FAR_RUNS), np.minimum(right, at + FAR_RUNS)
    jumps = signal.jumps
    rough = jumps[at - 1] - jumps[left] + jumps[right - 1] - jumps[at]
    memory = np.clip(1.0 - rough / 2 / np.maximum(right - left - 2, 1) / variance, 0.0, 0.95)
    return np.asarray(np.sqrt((1.0 - memory) / (1.0 + memory)))


def _line(signal: Signal, begin: Ints, end: Ints, where: Floats) -> Floats:
    """The value at `where` of the straight line through the runs from `begin` to before `end`."""
    runs = end - begin
    total = signal.sums[end] - signal.sums[begin]
    middle = (begin + end - 1) / 2
    along = signal.moments[end] - signal.moments[begin] - middle * total
    slope = np.where(runs >= 8, along / np.maximum(runs * (runs * runs - 1.0) / 12, 1.0), 0.0)
    return np.asarray(total / runs + slope * (where - middle))


def _rank_z(values: Floats, left: Ints, at: Ints, right: Ints) -> Floats:
    """Mann-Whitney's z without a sign: pairs of one run before and one after, counted by which is larger."""
    one, other = at - left, right - at
    blocks = [slice(first, first + BLOCK) for first in range(0, len(at), BLOCK)]
    lead = np.concatenate([_lead(values, left[block], at[block], right[block]) for block in blocks])
    return np.asarray(np.abs(lead) / 2 / np.sqrt(one * other * (one + other + 1) / 12))


def _lead(values: Floats, left: Ints, at: Ints, right: Ints) -> Ints:
    """By how many pairs the later run is the larger one more often than the earlier."""
    offsets = np.arange(NEAR_RUNS)
    before, after = at[:, None] - 1 - offsets, at[:, None] + offsets
    # A comparison with NaN is false, which takes the runs beyond a segment out of the count.
    first = np.where(before >= left[:, None], values[np.maximum(before, 0)], np.nan)[:, None, :]
    second = np.where(after < right[:, None], values[np.minimum(after, len(values) - 1)], np.nan)[:, :, None]
    larger = np.count_nonzero(second > first, axis=(1, 2))
    return np.asarray(larger - np.count_nonzero(second < first, axis=(1, 2)))
