"""Tolerances from what a trusted server does when it is asked again: alone, in a crowd, after it was started anew."""

from collections.abc import Iterable

import msgspec

from seatrial.check.answers.tolerance import TOLERANCES, Tolerance, tolerance_for
from seatrial.check.answers.walk import Walk, joined, walk
from seatrial.job.generation import Generation

_MARGIN = 2.0  # over the largest that was seen
RMS_MARGIN = 1.8  # over the root mean square, which a few hundred tokens tell well
_FLOOR = 0.1  # of the tolerance that the precision has without calibration: what is smaller is nobody's fault


class Calibrated(msgspec.Struct, frozen=True):
    """What was seen, and the tolerance that it gives; None when there was nothing to see."""

    answers: int
    positions: int
    largest: float
    rms: float
    near_ties: int
    largest_gap: float
    tolerance: Tolerance | None = None
    floored: bool = False  # next to nothing moved: the tolerance is the least that the precision has


def calibrate(pairs: Iterable[tuple[Generation, Generation]], precision: str) -> Calibrated:
    """Of answers that are right, each with what it is compared with. Answers without tokens tell nothing, and are not
    counted."""
    from seatrial.stats.drift import drift_of  # NumPy: not before it is needed

    walks = [walk(one.tokens, other.tokens) for one, other in pairs if one.tokens and other.tokens]
    every = joined(walks)
    seen = drift_of(every.expected, every.got, every.starts)
    gaps = [gap for one in walks if (gap := _gap_at_split(one)) is not None]
    largest_gap = max(gaps, default=0.0)
    result = Calibrated(len(walks), seen.positions, seen.largest, seen.rms, len(gaps), largest_gap)
    if not seen.positions:
        return result
    least = _least(precision)
    drift = max(_MARGIN * seen.largest, least.drift)
    tolerance = Tolerance(
        precision,
        drift=_rounded(drift),
        rms=_rounded(max(RMS_MARGIN * seen.rms, least.rms)),
        near_tie=_rounded(max(_MARGIN * largest_gap, drift)),
        near_ties=_rounded(len(gaps) / len(walks)),
    )
    floored = _MARGIN * seen.largest <= least.drift
    return msgspec.structs.replace(result, tolerance=tolerance, floored=floored)


def _gap_at_split(one: Walk) -> float | None:
    """Between the two likeliest where the texts part, as far as that is known."""
    if one.split is None:
        return None
    return one.gaps[-1] if one.gaps else 0.0


def _least(precision: str) -> Tolerance:
    """Of a precision that nobody has measured, that of the finest."""
    try:
        known = tolerance_for(precision)
    except KeyError:
        known = TOLERANCES["f32"]
    return Tolerance(precision, _FLOOR * known.drift, _FLOOR * known.rms, _FLOOR * known.near_tie)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
