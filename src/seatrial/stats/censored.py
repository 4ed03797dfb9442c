"""Quantiles of durations of which some had not ended when they were last looked at.

What is left out makes every quantile too small: the slow ones are those that did not end. By Kaplan and Meier an
unfinished duration counts as longer than it was seen to be, and as nothing more."""

from collections.abc import Sequence
from statistics import NormalDist

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

_Floats = NDArray[np.float64]

CONFIDENCE = 0.95
_NEARLY = 1e-12  # shares are sums of fractions: 0.5 may come as 0.49999999999999994


class Quantile(msgspec.Struct, frozen=True):
    """A value that a share of all durations does not exceed. None: it is more than `lower`, how much is not known."""

    share: float
    value: float | None
    lower: float  # with `upper`, what holds the true value with the confidence that was asked for
    upper: float | None


def quantiles(
    durations: ArrayLike, ended: ArrayLike, shares: Sequence[float], confidence: float = CONFIDENCE
) -> list[Quantile]:
    """Of `durations`, of which those that have not `ended` lasted at least as long. Raises ValueError for what is no
    duration; of none at all, no quantile is known."""
    times, done = np.asarray(durations, dtype=np.float64), np.asarray(ended, dtype=np.bool_)
    if times.shape != done.shape or times.ndim != 1:
        raise ValueError(f"{times.size} durations, and of {done.size} it is said whether they ended")
    if not np.all(times >= 0) or not np.all(np.isfinite(times)):
        raise ValueError("a duration is negative, infinite or no number")
    at, left, low, high = _survival(times, done, confidence)
    longest = float(times.max(initial=0.0))
    made = []
    for share in shares:
        beyond = 1 - share + _NEARLY
        value, lower, upper = (_first(at, one <= beyond) for one in (left, low, high))
        made.append(Quantile(share, value, longest if lower is None else lower, upper))
    return made


def _survival(times: _Floats, done: NDArray[np.bool_], confidence: float) -> tuple[_Floats, _Floats, _Floats, _Floats]:
    """When something ended, the share that lasts longer than that, and the interval of this share.

    The interval is of the logarithm of the share's logarithm (Kalbfleisch and Prentice), which stays within 0 and 1."""
    at, ends = np.unique(times[done], return_counts=True)
    at_risk = times.size - np.searchsorted(np.sort(times), at, side="left")
    left: _Floats = np.cumprod(1 - ends / at_risk, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.cumsum(ends / (at_risk * (at_risk - ends)))
        log_left = np.log(left)
        reach = NormalDist().inv_cdf((1 + confidence) / 2) * np.sqrt(variance) / np.abs(log_left)
        low, high = left ** np.exp(reach), left ** np.exp(-reach)
    nothing = left <= _NEARLY  # the last one ended: of the share beyond it nothing is known but the one before
    before = np.concatenate(([1.0], high))[:-1]
    return at, left, np.where(nothing, 0.0, low), np.where(nothing, before, high)


def _first(at: _Floats, where: NDArray[np.bool_]) -> float | None:
    return float(at[np.argmax(where)]) if where.any() else None
