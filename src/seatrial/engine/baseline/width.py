"""The width of bounds: how wide they are, the same width elsewhere, and whether that is within the cap."""

import math

from seatrial.engine.baseline.why import Refused
from seatrial.job import Bound, BoundState, told
from seatrial.stats.bounds import CAP, FLOOR
from seatrial.suite.baseline import Entry
from seatrial.suite.baseline.entry import relative_half_width


def half_of(entry: Entry) -> float:
    """To each side, in the unit of the figure. Raises Refused when it is switched off or has no bounds."""
    bound = entry.bound
    if bound.state is BoundState.DISABLED:
        raise Refused(f"it is switched off: {bound.why}")
    if bound.lower is not None and bound.upper is not None:
        # A lower bound of 0 may have been cut off there; then the upper side tells the width.
        cut = bound.lower == 0 and bound.center is not None and bound.center < bound.upper
        return bound.upper - (bound.center or 0.0) if cut else (bound.upper - bound.lower) / 2
    if bound.center is not None and bound.upper is not None:
        return bound.upper - bound.center
    if bound.center is not None and bound.lower is not None:
        return bound.center - bound.lower
    raise Refused("it has no bounds yet, so it has no width; `seatrial baseline update` makes them")


def floor_of(entry: Entry, half: float, center: float) -> float:
    """The least share of the center. Bounds by hand that are narrower than the usual floor are meant to be."""
    if entry.floor is not None:
        return entry.floor
    return min(FLOOR, half / abs(center)) if center else 0.0


def middle(bound: Bound, half: float) -> float:
    if bound.upper is not None:
        return bound.upper - half
    return (bound.lower or 0.0) + half


def around(center: float, half: float, bound: Bound) -> tuple[float | None, float | None]:
    """Open sides stay open; what was never negative does not become so."""
    lower = None if bound.lower is None else center - half
    if lower is not None and bound.lower is not None and bound.lower >= 0 and center >= 0:
        lower = max(0.0, lower)
    return lower, None if bound.upper is None else center + half


def cap_of(entry: Entry | None) -> float:
    return CAP if entry is None or entry.cap is None else entry.cap


def check_cap(lower: float | None, upper: float | None, center: float, entry: Entry, force: bool) -> None:
    half = relative_half_width(Bound(entry.metric, lower, upper, center=center))
    if half is not None and half > cap_of(entry) and not force:
        raise Refused(
            f"that is {half:.1%} to each side, more than the cap of {cap_of(entry):.0%}: it would find next to "
            "nothing; --force does it all the same, `seatrial baseline update` makes bounds that fit the runs"
        )


def raised(cap: float, half: float | None, center: float | None, force: bool) -> float:
    """The cap of the entry; what was forced raises it, so that the file does not contradict itself."""
    share = half / abs(center) if half is not None and center else 0.0
    return rounded_up(share) if force and share > cap else cap


def rounded_up(share: float) -> float:
    """To a hundredth of a percent."""
    return math.ceil(share * 1e4 - 1e-6) / 1e4


def percent(half: float, center: float) -> str:
    return f"{half / abs(center):.2%}" if center else told(half)
