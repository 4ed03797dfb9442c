"""Where a series may have changed, and which of these places stay when they are weighed beside each other."""

from collections.abc import Callable

import numpy as np

from seatrial.stats.change_evidence import features, likelihood, t_statistic
from seatrial.stats.change_signal import Floats, Ints, Signal

SCAN_RUNS = (6, 12, 25)  # windows on either side: short segments need the first, noisy ones the last
SCAN_T = 4.0  # a local maximum of t above this is a candidate
WEAK_T, WEAK_RUNS = 3.5, 50  # candidates below this go before anything dearer is asked
MOVE, MOVE_RUNS = 10, 20  # how far a candidate may move to where it splits best, judged by so many runs a side

Score = Callable[[Ints, Ints, Ints], Floats]  # of changes at the second, between the first and the third


def search_changes(signal: Signal, least: float, settled: Ints | None = None) -> tuple[Ints, Floats]:
    """The changes whose likelihood is at least `least` beside each other, and these likelihoods.

    What is `settled` is a change, whatever speaks for it: it stays where it is, and the others are judged beside it.
    """

    def chance(left: Ints, at: Ints, right: Ints) -> Floats:
        return likelihood(features(signal, left, at, right))

    places = candidates(signal)
    if settled is None or not len(settled):
        return prune(places, len(signal), chance, least)

    def chance_beside(left: Ints, at: Ints, right: Ints) -> Floats:
        return np.where(np.isin(at, settled), np.inf, chance(left, at, right))

    return prune(np.union1d(places, settled), len(signal), chance_beside, least)


def candidates(signal: Signal) -> Ints:
    """Local maxima of t in windows of several lengths, without the weak ones, each where it splits best."""

    def strength(left: Ints, at: Ints, right: Ints) -> Floats:
        return np.abs(t_statistic(signal, left, at, right, WEAK_RUNS)[0])

    places, _ = prune(_scan(signal), len(signal), strength, WEAK_T)
    places, _ = prune(_moved(signal, places), len(signal), strength, WEAK_T)
    return places


def prune(places: Ints, end: int, score: Score, least: float) -> tuple[Ints, Floats]:
    """Takes out, again and again, what scores less than `least` and less than both its neighbours.

    Taking one out makes the segments beside it longer, so its neighbours are scored anew.
    """
    scores = score(*_between(places, end)) if len(places) else np.empty(0)
    while len(places):
        around = np.concatenate(([np.inf], scores, [np.inf]))
        weak = (scores < least) & (scores <= around[:-2]) & (scores < around[2:])
        if not weak.any():
            break
        keep = ~weak
        beside = np.zeros(len(places), dtype=bool)
        beside[:-1] |= weak[1:]
        beside[1:] |= weak[:-1]
        places, scores, beside = places[keep], scores[keep], beside[keep]
        if beside.any():
            left, at, right = _between(places, end)
            scores[beside] = score(left[beside], at[beside], right[beside])
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
    """Each to where the two levels beside it explain most, without leaving its own two segments."""
    if not len(places):
        return places
    left, at, right = (side[:, None] for side in _between(places, len(signal)))
    left, right = np.maximum(left, at - MOVE_RUNS), np.minimum(right, at + MOVE_RUNS)
    tried = np.clip(at + np.arange(-MOVE, MOVE + 1), left + 1, right - 1)
    sums = signal.sums
    middle = sums[tried]
    explained = (middle - sums[left]) ** 2 / (tried - left) + (sums[right] - middle) ** 2 / (right - tried)
    return np.unique(np.take_along_axis(tried, explained.argmax(axis=1)[:, None], axis=1)[:, 0])
