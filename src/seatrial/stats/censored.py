"""Quantiles of right-censored durations (Kaplan-Meier).

Dropping unfinished durations would make every quantile too small.
"""

from collections.abc import Sequence
from statistics import NormalDist

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

_Floats = NDArray[np.float64]

CONFIDENCE = 0.95
_NEARLY = 1e-12  # shares are sums of fractions: 0.5 may be 0.49999999999999994


class Quantile(msgspec.Struct, frozen=True):
    """A value that a share of all durations does not exceed. A value of None is unknown and above `lower`."""

    share: float
    value: float | None
    lower: float  # with `upper`, the confidence interval
    upper: float | None


def quantiles(durations: ArrayLike, ended: ArrayLike, shares: Sequence[float]) -> list[Quantile]:
    """Quantiles of `durations`; one that has not `ended` is a lower bound. Without durations all values are None.
    Raises ValueError for negative or infinite durations."""
    times, done = np.asarray(durations, dtype=np.float64), np.asarray(ended, dtype=np.bool_)
    if times.shape != done.shape or times.ndim != 1:
        raise ValueError(f"expected as many durations as `ended` flags, got {times.size} and {done.size}")
    if not np.all(times >= 0) or not np.all(np.isfinite(times)):
        raise ValueError("durations must be finite and not negative")
    at, left, low, high = _survival(times, done)
    longest = float(times.max(initial=0.0))
    made = []
    for share in shares:
        beyond = 1 - share + _NEARLY
        value, lower, upper = (_first(at, one <= beyond) for one in (left, low, high))
        made.append(Quantile(share, value, longest if lower is None else lower, upper))
    return made


def _survival(times: _Floats, done: NDArray[np.bool_]) -> tuple[_Floats, _Floats, _Floats, _Floats]:
    """Times of ends, the share that lasts longer, and the confidence interval of this share.

    The interval uses the log-log transformation (Kalbfleisch and Prentice), which stays within 0 and 1."""
    at, ends = np.unique(times[done], return_counts=True)
    at_risk = times.size - np.searchsorted(np.sort(times), at, side="left")
    left: _Floats = np.cumprod(1 - ends / at_risk, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.cumsum(ends / (at_risk * (at_risk - ends)))
        log_left = np.log(left)
        reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * np.sqrt(variance) / np.abs(log_left)
        low, high = left ** np.exp(reach), left ** np.exp(-reach)
    nothing = left <= _NEARLY  # all have ended: the upper limit is that of the time before
    before = np.concatenate(([1.0], high))[:-1]
    return at, left, np.where(nothing, 0.0, low), np.where(nothing, before, high)


def _first(at: _Floats, where: NDArray[np.bool_]) -> float | None:
    return float(at[np.argmax(where)]) if where.any() else None
