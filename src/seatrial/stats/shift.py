"""Finds a lasting shift that is too small for the bounds of one run: the last runs add up.

Each of the last runs adds its distance from the center, as a share of the half-width of the bounds, minus SLACK. A run
counts at most as MOST, so that no single outlier decides. If the sum over the newest runs, at most WINDOW, exceeds
LIMIT, the level has shifted; the last run itself must be on that side. At least four runs are needed. The shift began
where the sum over all runs since then is largest.

Chosen on the quiet parts of 94 real series together with the bounds of one run; bench/bounds.py measures both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

WINDOW = 6  # runs that decide whether there is a shift
SLACK = 0.3
MOST = 0.75
LIMIT = 1.5


@dataclass(frozen=True)
class Shift:
    run: str  # its first run
    runs: int  # from that run to the last one
    up: bool
    size: float  # the median of these runs, relative to the center: 0.08 is 8 % above it
    text: str  # `8 % above its baseline since run R (5 runs)`


def find_shift(
    runs: Sequence[tuple[str, float]], lower: float | None, upper: float | None, center: float | None
) -> Shift | None:
    """The shift that the last of `runs` (name and value of each, oldest first) is part of; None if there is none."""
    if center is None or (lower is None and upper is None):
        return None
    # A lower bound of 0 may be clamped, so the wider side gives the half-width.
    half = max(abs(bound - center) for bound in (lower, upper) if bound is not None)
    for sign, bound in ((1, upper), (-1, lower)):
        if bound is None or not half or not runs or sign * (runs[-1][1] - center) <= SLACK * half:
            continue
        shares = [max(-MOST, min(MOST, sign * (value - center) / half)) - SLACK for _, value in reversed(runs)]
        sums = list(accumulate(shares))
        if max(sums[:WINDOW]) <= LIMIT:
            continue
        count = sums.index(max(sums)) + 1
        level = median(value for _, value in runs[-count:])
        size = (level - center) / abs(center) if center else 0.0
        first = runs[-count][0]
        far = f"{abs(size) * 100:.2g} % " if center else ""
        earlier = " or earlier" if count == len(runs) else ""
        side = "above" if sign > 0 else "below"
        return Shift(
            first, count, sign > 0, size, f"{far}{side} its baseline since run {first}{earlier} ({count} runs)"
        )
    return None
