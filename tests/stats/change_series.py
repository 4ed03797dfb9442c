"""Seeded series of the shapes that real metrics have: levels, noise with a little memory, spikes, slopes."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def noise(seed: int, runs: int, level: float = 100.0) -> Floats:
    """White noise with a standard deviation of 1."""
    return level + np.random.default_rng(seed).normal(size=runs)


def remembering(seed: int, runs: int, memory: float) -> Floats:
    """Noise around 100 in which each run takes a share of the one before."""
    values = noise(seed, runs, 0.0)
    for place in range(1, runs):
        values[place] = memory * values[place - 1] + (1 - memory**2) ** 0.5 * values[place]
    return 100.0 + values


def levels(*segments: tuple[int, float]) -> tuple[Floats, list[int]]:
    """So many runs at each level, without noise; and the first run after each change."""
    lengths = [runs for runs, _ in segments]
    return np.repeat([level for _, level in segments], lengths).astype(float), np.cumsum(lengths)[:-1].tolist()


def lively(seed: int) -> tuple[Floats, list[int]]:
    """Two to six levels of 40 to 200 runs, four to eight times the noise apart; one run in a hundred is a spike."""
    dice = np.random.default_rng(seed)
    segments, level = [], 400.0
    for _ in range(dice.integers(2, 7)):
        segments.append((int(dice.integers(40, 200)), level))
        level += float(dice.choice([-1, 1]) * dice.uniform(4, 8))
    values, changes = levels(*segments)
    values += remembering(seed, len(values), 0.2)
    spikes = dice.choice(len(values), size=len(values) // 100, replace=False)
    values[spikes] += dice.uniform(20, 60, size=len(spikes))
    return values, changes


def near(found: list[int], wanted: list[int], margin: int = 5) -> tuple[int, int]:
    """How many of the wanted were found, and how many were found beside them."""
    hits = sum(any(abs(place - other) <= margin for other in found) for place in wanted)
    beside = sum(all(abs(place - other) > margin for other in wanted) for place in found)
    return hits, beside
