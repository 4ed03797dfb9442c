"""Changes of a series that grows run by run: each new run costs the same, and what was reported once stays."""

import math
from bisect import bisect_left

import numpy as np

from seatrial.stats.change_points import Change, describe
from seatrial.stats.change_search import search
from seatrial.stats.change_signal import Floats, Ints, signal_of

WINDOW_RUNS = 250  # the newest, which are looked at when a run is appended; only the newer half can get new changes
SAMPLE_RUNS = 512  # kept of the whole series, evenly spaced, for its spread
LEAST = 0.7  # confidence; more than at once for a whole series, because here each run is another chance to be wrong
WAIT_RUNS = 5  # from a change on, before it can be reported
AGREE_RUNS = 3  # so many appended runs in a row have to find the same change
SAME_RUNS = 5  # changes no farther apart than this are the same one


class Online:
    """Finds the changes of a series to which values are appended.

    1. A change that was reported is never withdrawn, moved or reported again.
    2. Work and memory for one value depend on the window, not on how long the series has become.
    3. Values that are not finite are passed over; all others keep their index.
    4. The same values give the same changes, whatever happens in between.
    """

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self._values: list[float] = []
        self._indices: list[int] = []  # of the values in the window
        self._given = 0
        self._finite = 0
        self._sample: list[float] = []
        self._stride = 1  # every so many values one is in the sample
        self._waiting: dict[int, int] = {}  # what may be reported soon: how often it was found in a row

    @property
    def changes(self) -> list[Change]:
        """All that were reported so far, by index."""
        return list(self._changes)

    def append(self, value: float) -> list[Change]:
        """Takes the next value; gives the changes that are sure from now on, which are in the past by some runs."""
        self._given += 1
        if not math.isfinite(value):
            return []
        self._keep(float(value))
        values = np.array(self._values)
        signal = signal_of(values, np.array(self._sample), self._finite)
        if signal is None:
            return []
        settled = self._settled()
        places, confidences = search(signal, LEAST, settled)
        ripe = self._ripe(places[np.argsort(-confidences)], settled)
        return self._report(values, places, confidences, ripe) if ripe else []

    def _keep(self, value: float) -> None:
        if self._finite % self._stride == 0:
            self._sample.append(value)
            if len(self._sample) > SAMPLE_RUNS:
                del self._sample[1::2]
                self._stride *= 2
        self._finite += 1
        self._values.append(value)
        self._indices.append(self._given - 1)
        if len(self._values) > WINDOW_RUNS:
            del self._values[0], self._indices[0]

    def _settled(self) -> Ints:
        """Where in the window the changes are that were reported."""
        first = bisect_left(self._changes, self._indices[0] + 1, key=lambda change: change.index)
        return np.searchsorted(self._indices, [change.index for change in self._changes[first:]]).astype(np.intp)

    def _ripe(self, places: Ints, settled: Ints) -> set[int]:
        """Of the places, the surest first, those that are new, old enough, and were found often enough."""
        oldest = 0 if self._finite <= WINDOW_RUNS else WINDOW_RUNS // 2
        newest = len(self._values) - WAIT_RUNS
        known = set(settled.tolist())
        ripe: set[int] = set()
        waiting: dict[int, int] = {}
        for place in places.tolist():
            index = self._indices[place]
            if not oldest <= place <= newest or any(abs(place - other) <= SAME_RUNS for other in known | ripe):
                continue
            before = (times for other, times in self._waiting.items() if abs(other - index) <= SAME_RUNS)
            waiting[index] = 1 + max(before, default=0)
            if waiting[index] >= AGREE_RUNS:
                ripe.add(place)
        self._waiting = {index: times for index, times in waiting.items() if times < AGREE_RUNS}
        return ripe

    def _report(self, values: Floats, places: Ints, confidences: Floats, ripe: set[int]) -> list[Change]:
        found = describe(values, places, confidences, np.array(self._indices))
        new = [change for change, place in zip(found, places.tolist(), strict=True) if place in ripe]
        self._changes = sorted([*self._changes, *new], key=lambda change: change.index)
        return new
