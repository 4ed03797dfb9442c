"""Whether a server keeps up with a rate: the decision behind `find: peak`. Pure.

The constants were chosen by simulation (bench/peak.py): the rate found is within 5 % of the capacity of servers with a
queue, with shared processing and with batches."""

import math
from collections.abc import Sequence
from typing import NamedTuple

LEAST = 100  # requests of a window
LONGEST = 8  # a window is extended to this many times the first one that is long enough
WARMUP = 1 / 5  # of the window
_BINS, _POINTS = 16, 10
# A random walk has a slope that differs from 0 by this many residuals of its straight line (standard deviations).
_WALK = 4.24


class Flow(NamedTuple):
    """Requests during a window after its warm-up."""

    arrived: int
    answered: int
    growth: float  # of the number in flight, by a straight line
    noise: float  # standard deviation of `growth`, if in flight were a random walk

    @property
    def behind(self) -> bool:
        return self.answered < 0.99 * self.arrived

    @property
    def keeps_up(self) -> bool | None:
        """None: undecided; a longer window may decide."""
        if not self.behind and self.growth + 1.5 * self.noise <= 0.03 * self.arrived:
            return True
        return False if self.behind and self.growth > 2.5 * self.noise else None

    @property
    def falls_behind(self) -> str:
        """The reason, also if the longest window did not decide; empty if the server keeps up."""
        if self.keeps_up or (self.keeps_up is None and not (self.behind and self.growth > self.noise)):
            return ""
        return f"the server falls behind: {self.answered / self.arrived:.1%} answered, in flight {self.growth:+.0f}"


def measure_flow(starts: Sequence[float], ends: Sequence[float], now_s: float) -> Flow | None:
    """`starts` are in order, `ends` parallel to them, infinite for requests in flight; both from the beginning of the
    load. None if the window is too short for its requests or for their duration."""
    import numpy as np

    begun, ended = np.asarray(starts), np.asarray(ends)
    first_s = float(np.median(np.minimum(ended[:10], now_s) - begun[:10])) if starts else 0.0
    warm_s = max(now_s * WARMUP, 2 * first_s)  # until as many requests end as begin
    edges = np.linspace(warm_s, now_s, _BINS * _POINTS + 1)
    arrived, answered = np.searchsorted(begun, edges), np.searchsorted(np.sort(ended), edges)
    if warm_s > now_s / 2 or arrived[-1] - arrived[0] < LEAST:
        return None
    in_flight = (arrived - answered)[1:].reshape(_BINS, _POINTS).mean(axis=1)
    at = (np.arange(_BINS) + 0.5) / _BINS - 0.5
    growth, level = np.polyfit(at, in_flight, 1)
    residual = math.sqrt(float(((in_flight - level - growth * at) ** 2).sum()) / (_BINS - 2))
    total = int(arrived[-1] - arrived[0]), int(answered[-1] - answered[0])
    return Flow(*total, float(growth), _WALK * residual)
