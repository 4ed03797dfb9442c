"""What the answers of a trial come to together: a fault too small for one answer shows in all of them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from seatrial.kinds.serving.answers.compare import Agreement, Comparison, Tolerance, Walk, joined, tolerance_for, walk
from seatrial.kinds.serving.generation import Generation

if TYPE_CHECKING:
    from seatrial.stats.drift import Drift

_UNLIKELY = 1e-4  # of so many near ties by chance
_SLACK = 0.5  # near ties that are always granted: noise has longer tails than a normal distribution
_STANDARD_ERRORS = 6.0
_MOST_ONE_SIDED = 0.3  # of the root mean square; rounding was at 0.08
_MOST_SLOPE = 0.15  # share of what moved; rounding was at 0.02
_LEAST = 0.1  # of the tolerance: what is smaller does no harm, whatever its shape


class WholeJudgement(msgspec.Struct, frozen=True):
    """`problems` is empty when the trial passes this rule."""

    problems: tuple[str, ...] = ()
    cases: int = 0
    near_ties: int = 0
    near_ties_expected: float = 0.0
    positions: int = 0
    rms: float = 0.0
    mean: float = 0.0
    slope: float = 0.0
    largest: float = 0.0

    @property
    def passes(self) -> bool:
        return not self.problems


def judge_whole(comparisons: Sequence[Comparison], walks: Iterable[Walk], tolerance: Tolerance) -> WholeJudgement:
    from seatrial.stats import drift  # NumPy: not before it is needed

    every = joined(walks)
    seen = drift.drift_of(every.expected, every.got, every.starts)
    ties = sum(one.agreement is Agreement.NEAR_TIE for one in comparisons)
    likely = drift.expected_flips(every.gaps, seen.pair_rms)
    if tolerance.near_ties is not None:
        likely = max(likely, tolerance.near_ties * len(comparisons))
    problems = list(_moved(seen, tolerance))
    if drift.poisson_tail(ties, likely + _SLACK) < _UNLIKELY:
        problems.append(
            f"{ties} of {len(comparisons)} answers went the other way at a near tie; by how far the log-probabilities "
            f"moved, {likely:.1f} would"
        )
    moved = seen.positions, seen.rms, seen.mean, seen.slope, seen.largest
    return WholeJudgement(tuple(problems), len(comparisons), ties, likely, *moved)


def _moved(seen: "Drift", tolerance: Tolerance) -> Iterable[str]:
    """By size and by shape: rounding has no direction."""
    most = tolerance.rms * (1 + seen.positions**-0.5) if seen.positions else 0.0
    if seen.rms > most:
        yield (
            f"over {seen.positions} tokens the log-probabilities moved by {seen.rms:.3g} (root mean square); "
            f"{tolerance.precision} explains {most:.3g}"
        )
    one_sided = abs(seen.mean) > max(_MOST_ONE_SIDED * seen.rms, _LEAST * tolerance.rms)
    if one_sided and abs(seen.mean_t) > _STANDARD_ERRORS:
        yield (
            f"the log-probabilities moved to one side: by {seen.mean:+.3g} on average, which is "
            f"{abs(seen.mean_t):.0f} standard errors; rounding has no direction"
        )
    sloped = seen.slope_share > _MOST_SLOPE and seen.rms > _LEAST * tolerance.rms
    if sloped and abs(seen.slope_t) > _STANDARD_ERRORS:
        way = "sharper" if seen.slope > 0 else "flatter"
        yield (
            f"the probabilities are {way} than expected, by {abs(seen.slope):.2%} of each log-probability: a "
            "temperature or a scale, not rounding"
        )


# Tolerances from what a trusted server does when it is asked again: alone, in a crowd, after it was started anew.


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
    # Between the two likeliest where the texts part, as far as that is known.
    gaps = [one.gaps[-1] if one.gaps else 0.0 for one in walks if one.split is not None]
    largest_gap = max(gaps, default=0.0)
    result = Calibrated(len(walks), seen.positions, seen.largest, seen.rms, len(gaps), largest_gap)
    if not seen.positions:
        return result
    known = tolerance_for(precision, unknown="f32")
    drift = max(_MARGIN * seen.largest, _FLOOR * known.drift)
    tolerance = Tolerance(
        precision,
        drift=_rounded(drift),
        rms=_rounded(max(RMS_MARGIN * seen.rms, _FLOOR * known.rms)),
        near_tie=_rounded(max(_MARGIN * largest_gap, drift)),
        near_ties=_rounded(len(gaps) / len(walks)),
    )
    floored = _MARGIN * seen.largest <= _FLOOR * known.drift
    return msgspec.structs.replace(result, tolerance=tolerance, floored=floored)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
