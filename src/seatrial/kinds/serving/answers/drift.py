"""Checks over all answers of a trial: finds faults too small to show in one answer."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from seatrial.kinds.serving.answers.compare import Agreement, Comparison, Tolerance, Walk, joined, tolerance_for, walk
from seatrial.kinds.serving.generation import Generation

if TYPE_CHECKING:
    from seatrial.stats.drift import Drift

_UNLIKELY = 1e-4  # probability of that many near ties by chance
_SLACK = 0.5  # near ties always allowed, because noise has longer tails than a normal distribution
_STANDARD_ERRORS = 6.0
_MOST_ONE_SIDED = 0.3  # share of the root mean square; rounding had 0.08
_MOST_SLOPE = 0.15  # share of the movement; rounding had 0.02
_LEAST = 0.1  # share of the tolerance; smaller drift is harmless


class WholeJudgement(msgspec.Struct, frozen=True):
    """`problems` is empty if the trial passes."""

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
    from seatrial.stats import drift  # imports NumPy, so only when needed

    every = joined(walks)
    seen = drift.drift_of(every.expected, every.got, every.starts)
    ties = sum(one.agreement is Agreement.NEAR_TIE for one in comparisons)
    likely = drift.expected_flips(every.gaps, seen.pair_rms)
    if tolerance.near_ties is not None:
        likely = max(likely, tolerance.near_ties * len(comparisons))
    problems = list(_moved(seen, tolerance))
    if drift.poisson_tail(ties, likely + _SLACK) < _UNLIKELY:
        problems.append(
            f"{ties} of {len(comparisons)} answers differ at a near tie (about {likely:.1f} expected from how far the "
            "log-probabilities moved)"
        )
    moved = seen.positions, seen.rms, seen.mean, seen.slope, seen.largest
    return WholeJudgement(tuple(problems), len(comparisons), ties, likely, *moved)


def _moved(seen: "Drift", tolerance: Tolerance) -> Iterable[str]:
    """Problems with the size or direction of the drift; rounding has no direction."""
    most = tolerance.rms * (1 + seen.positions**-0.5) if seen.positions else 0.0
    if seen.rms > most:
        yield (
            f"over {seen.positions} tokens the log-probabilities moved by {seen.rms:.3g} (root mean square; "
            f"at most {most:.3g} expected for {tolerance.precision})"
        )
    one_sided = abs(seen.mean) > max(_MOST_ONE_SIDED * seen.rms, _LEAST * tolerance.rms)
    if one_sided and abs(seen.mean_t) > _STANDARD_ERRORS:
        yield (
            f"the log-probabilities moved in one direction, by {seen.mean:+.3g} on average "
            f"({abs(seen.mean_t):.0f} standard errors): an error in the computation, not rounding"
        )
    sloped = seen.slope_share > _MOST_SLOPE and seen.rms > _LEAST * tolerance.rms
    if sloped and abs(seen.slope_t) > _STANDARD_ERRORS:
        way = "favour likely tokens more" if seen.slope > 0 else "favour likely tokens less"
        yield (
            f"the probabilities {way} than expected: each log-probability is off by {abs(seen.slope):.2%} of its "
            "size, which is not rounding; check the temperature and the scaling of the logits"
        )


# Calibration: tolerances from the answers of a trusted server that is asked repeatedly, alone, in a crowd, restarted.


_MARGIN = 2.0  # over the largest difference seen
RMS_MARGIN = 1.8  # over the root mean square, which a few hundred tokens determine well
_FLOOR = 0.1  # share of the precision's default tolerance; smaller differences are harmless


class Calibrated(msgspec.Struct, frozen=True):
    """Differences seen, and the resulting tolerance; None if nothing could be compared."""

    answers: int
    positions: int
    largest: float
    rms: float
    near_ties: int
    largest_gap: float
    tolerance: Tolerance | None = None
    floored: bool = False  # almost nothing moved, so the tolerance is the minimum for the precision


def calibrate(pairs: Iterable[tuple[Generation, Generation]], precision: str) -> Calibrated:
    """Calibrates from pairs of correct answers. Answers without tokens are ignored."""
    from seatrial.stats.drift import drift_of  # imports NumPy, so only when needed

    walks = [walk(one.tokens, other.tokens) for one, other in pairs if one.tokens and other.tokens]
    every = joined(walks)
    seen = drift_of(every.expected, every.got, every.starts)
    # gap between the two most likely tokens where the texts diverge; 0 if unknown
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
