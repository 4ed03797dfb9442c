"""Student's t distribution: tail and quantiles, to at least nine digits.

SciPy has both, but importing it takes longer than all of `seatrial history`.
"""

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

_MOST = 100_000  # terms of the fraction; about the square root of the degrees of freedom are needed
_TINY = 1e-300
_NORMAL = NormalDist()


def stdtr(freedom: float, t: float) -> float:
    """The cumulative distribution function."""
    upper = _tail(float(freedom), abs(float(t)))
    return upper if t < 0 else 1 - upper


def stdtrit(freedom: ArrayLike, share: ArrayLike) -> NDArray[np.float64]:
    """The quantiles of these shares; nan for invalid degrees of freedom."""
    pairs = np.broadcast(freedom, share)
    made = [_quantile(float(of), float(at)) for of, at in pairs]
    return np.asarray(made, dtype=np.float64).reshape(pairs.shape)


@lru_cache(maxsize=65_536)
def _quantile(freedom: float, share: float) -> float:
    if not (freedom > 0 and 0 < share < 1):
        return {0.0: -math.inf, 1.0: math.inf}.get(share, math.nan) if freedom > 0 else math.nan
    if share == 0.5:
        return 0.0
    tail = min(share, 1 - share)
    z = -_NORMAL.inv_cdf(tail)
    t = max(z + (z**3 + z) / (4 * freedom), 1e-3)
    for _ in range(200):
        # Newton's method on the logarithms, where the tail is nearly a straight line.
        upper = _tail(freedom, t)
        step = (math.log(upper) - math.log(tail)) * upper / (t * _density(freedom, t)) if upper else -1.0
        step = min(max(step, -2.0), 2.0)
        t *= math.exp(step)
        if abs(step) < 1e-14:
            break
    return t if share > 0.5 else -t


def _density(freedom: float, t: float) -> float:
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    return math.exp(scale - (freedom + 1) / 2 * math.log1p(t * t / freedom))


def _tail(freedom: float, t: float) -> float:
    """The share of values above `t`, for t >= 0: half of the incomplete beta function I(x; freedom/2, 1/2)."""
    if math.isnan(t) or not freedom > 0:
        return math.nan
    if math.isinf(t):
        return 0.0
    a, b = freedom / 2, 0.5
    ratio = (t / math.sqrt(freedom)) ** 2
    x, rest = 1 / (1 + ratio), ratio / (1 + ratio)
    if x == 0 or rest == 0:
        return 0.0 if x == 0 else 0.5
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) - a * math.log1p(ratio) + b * math.log(rest)
    front = math.exp(log_front)
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a / 2
    return (1 - front * _fraction(b, a, rest) / b) / 2


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function (Lentz's method)."""
    below, above = 1.0, 1 - (a + b) * x / (a + 1)
    above = 1 / (above if abs(above) > _TINY else _TINY)
    made = above
    for m in range(1, _MOST):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            above = 1 + term * above
            above = 1 / (above if abs(above) > _TINY else _TINY)
            below = 1 + term / (below if abs(below) > _TINY else _TINY)
            factor = above * below
            made *= factor
        if abs(factor - 1) < 1e-15:
            break
    return made
