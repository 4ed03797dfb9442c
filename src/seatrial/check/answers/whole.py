"""What the answers of a trial come to together: a fault too small for one answer shows in all of them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from seatrial.check.answers.comparison import Agreement, Comparison
from seatrial.check.answers.tolerance import Tolerance
from seatrial.check.answers.walk import Walk, joined

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
    problems = [*_size(seen, tolerance), *_shape(seen, tolerance)]
    if drift.poisson_tail(ties, likely + _SLACK) < _UNLIKELY:
        problems.append(
            f"{ties} of {len(comparisons)} answers went the other way at a near tie; by how far the log-probabilities "
            f"moved, {likely:.1f} would"
        )
    return WholeJudgement(
        problems=tuple(problems),
        cases=len(comparisons),
        near_ties=ties,
        near_ties_expected=likely,
        positions=seen.positions,
        rms=seen.rms,
        mean=seen.mean,
        slope=seen.slope,
        largest=seen.largest,
    )


def _size(seen: "Drift", tolerance: Tolerance) -> Iterable[str]:
    most = tolerance.rms * (1 + seen.positions**-0.5) if seen.positions else 0.0
    if seen.rms > most:
        yield (
            f"over {seen.positions} tokens the log-probabilities moved by {seen.rms:.3g} (root mean square); "
            f"{tolerance.precision} explains {most:.3g}"
        )


def _shape(seen: "Drift", tolerance: Tolerance) -> Iterable[str]:
    """Rounding has no direction."""
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
