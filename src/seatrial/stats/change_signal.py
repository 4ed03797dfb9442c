"""A series of figures made ready for the search of its changes: without isolated spikes, in units of its own noise."""

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

SPIKE_RUNS = 7  # a spike is judged by the median of so many runs around it: up to three of them in a row are ignored
SPIKE_SIZE = 5.0  # how many times the noise around that median makes a spike
MAD_TO_SD = 1.4826
QUIETEST = 1e-3  # noise is taken to be at least this share of the spread: nobody sees less in a plot
FARTHEST = 1e4  # times the noise; what is farther out counts as that, so that sums of squares keep their digits


@dataclass(frozen=True)
class Signal:
    """What the search needs, all of it free of scale and of level: `a * values + b` gives the same signal."""

    raw: Floats  # in units of the noise, the median at 0
    sums: Floats  # running sums of the values without spikes, with a 0 in front
    squares: Floats  # of their squares
    moments: Floats  # of value * position
    jumps: Floats  # of the squares of the differences from one run to the next
    spread: float  # from the 0.5th to the 99.5th percentile of `raw`: the height of a plot that shows nearly all

    def __len__(self) -> int:
        return len(self.raw)


def signal_of(values: Floats) -> Signal | None:
    """The signal of finite values; None where nothing can have changed: under four values, or all the same."""
    if len(values) < 4:
        return None
    # First to a size at which neither sums nor squares overflow or vanish.
    largest = float(np.abs(values).max())
    if largest == 0.0:
        return None
    scaled = values / largest
    spread = _height(scaled)
    if spread == 0.0:
        spread = float(scaled.max() - scaled.min())  # all but a few runs are equal
    if spread <= 1e-12:  # nothing but the last digits of a float
        return None
    scaled = scaled - median(scaled)
    calm = _without_spikes(scaled)
    noise = max(_noise(calm), QUIETEST * spread)
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
    if scale == 0.0:  # most runs are equal to their neighbours: figures of a coarse clock
        some = off[off > 0]
        if not len(some):
            return values
        scale = MAD_TO_SD * median(some)
    return np.where(off > SPIKE_SIZE * scale, around, values)


def _noise(values: Floats) -> float:
    """From one run to the next, so that changes of the level do not count."""
    steps = np.diff(values)
    noise = MAD_TO_SD * median(np.abs(steps)) or float(np.std(steps))
    return noise / 2**0.5


def _height(values: Floats) -> float:
    """From the 0.5th to the 99.5th percentile, each between its two neighbours as usual."""
    last = len(values) - 1
    at = 0.005 * last
    low = int(at)
    high = last - low
    ordered = np.partition(values, sorted({low, low + 1, high - 1, high}))
    share = at - low
    return float((ordered[high] - ordered[low]) * (1 - share) + (ordered[high - 1] - ordered[low + 1]) * share)


def median(values: Floats) -> float:
    """As np.median, without its cost for short arrays."""
    middle = len(values) // 2
    if len(values) % 2:
        return float(np.partition(values, middle)[middle])
    pair = np.partition(values, (middle - 1, middle))
    return float(pair[middle - 1]) / 2 + float(pair[middle]) / 2  # the sum could leave the range of a float


def _running(values: Floats) -> Floats:
    sums = np.zeros(len(values) + 1)
    np.cumsum(values, out=sums[1:])
    return sums
