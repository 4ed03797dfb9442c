"""Moves the bounds of an entry to a new level, or widens them. Pure: returns an Edit."""

import math
import re
from itertools import pairwise, takewhile
from statistics import median

from seatrial.baseline.edit import Edit, Refused, Updated, Why
from seatrial.baseline.models import BaselineEntry, relative_half_width, text_of
from seatrial.baseline.selection import MetricHistory, recent_runs, runs_of, runs_text
from seatrial.checks.bounds import shift_of
from seatrial.job import Bound, BoundState, pair_text, unit_factor, value_text
from seatrial.record.history import Point, Series
from seatrial.stats.bounds import CAP, FLOOR, moved_half_width


def units_differ(bound: Bound, series: Series) -> Refused:
    units = f"bounds are in {bound.unit or 'no unit'}, runs in {series.unit or 'no unit'}"
    return Refused(f"{units}, so levels cannot be compared; delete the entry to start over")


def recenter_entry(chosen: MetricHistory, entry: BaselineEntry, why: Why) -> Updated:
    """Centers the bounds on the level of the newest runs. Raises Refused.

    The width is kept, but wider if fewer runs give the new center, and never below the floor. The newest level is that
    of the last runs outside the bounds on the same side; if the last run is inside, of the runs of a lasting shift, or
    of those since the last change of the level.
    """
    bound, half = entry.bound, half_of(entry)
    if unit_factor(bound.unit, chosen.series.unit) != 1:
        raise units_differ(bound, chosen.series)
    before = bound.center if bound.center is not None else middle(bound, half)
    level = _newest_level(chosen, bound, before)
    regressions = [point.run for point in level if point.mark == "regression"]
    if regressions and not why.force:
        raise Refused(f"run {regressions[0]} is marked as a regression; use --force to accept its level")
    center = median(point.value for point in level)
    floor = entry.keys.floor
    if floor is None:  # hand-written bounds may be narrower than the default floor
        floor = min(FLOOR, half / abs(before)) if before else 0.0
    least = floor * abs(center)
    moved = center / before - 1 if before else 0.0
    levels = f"{value_text(before)} → {value_text(center)} ({moved:+.1%})"
    notes = [f"new level of {runs_text(level)} since run {level[0].run}: {levels}"]
    if (moved > 0) is (bound.better == "lower") and moved != 0:
        notes.append("the new level is worse than before and is now accepted")
    runs = runs_of(level)
    width_runs = bound.runs if bound.width_runs is None else bound.width_runs
    kept, half = half, moved_half_width(half, bound.runs if width_runs else 0, bound.width_runs is not None, len(runs))
    if half > kept * 1.001:
        widths = f"±{half_width_text(half, center)} instead of ±{half_width_text(kept, center)}"
        notes.append(f"{widths}: the new center is less certain with {runs_text(level)}")
    if least > half:
        notes.append(f"widened to the floor of {half_width_text(least, center)}")
        half = least
    lower, upper = around(center, half, bound)
    check_cap(lower, upper, center, entry, why.force)
    first, last = level[0], level[-1]
    values = {
        "lower": lower,
        "upper": upper,
        "center": center,
        "runs": len(runs),
        "figures": len(level) if len(level) > len(runs) else None,
        "since": text_of(first.at_s),
        "width": {"runs": width_runs},
        "method": f"{(entry.keys.method or 'by hand').split(', recentered')[0]}, recentered on {runs_text(level)}",
        "cap": raised(cap_of(entry), half, center, why.force),
        "state": str(BoundState.USABLE),
        "why": None,
        "under_test": chosen.tested.get(runs[-1]) or None,
        "level": None,
        "used": None,  # written by Seatrial 0.1
        "left_out": None,
        "changed": {"run": first.run, "at": text_of(first.at_s), "before": before, "after": center},
        "accepted": {"run": first.run, "at": text_of(first.at_s), "until": text_of(last.at_s)},
    }
    what = f"recentered from {value_text(before)} to {value_text(center)}, on run {first.run}"
    edit = Edit(entry.benchmark, entry.metric, values, why.of(what), untrue=entry.invented)
    return Updated(edit, tuple(notes), accepted=first.run)


def widen(entry: BaselineEntry, why: Why, by: float | None = None, to: float | None = None) -> Updated:
    """Widens the bounds `by` a share, or `to` a share of the center, which becomes the floor too. Raises Refused."""
    bound, half = entry.bound, half_of(entry)
    center = bound.center or middle(bound, half)  # a share of zero is zero
    if not center:
        raise Refused("the bounds are centered on zero, so a share of the center is zero; edit the bounds by hand")
    new = half * (1 + by) if by is not None else abs(center) * (to or 0.0)
    if not new > half:
        raise Refused(
            f"±{half_width_text(new, center)} is not wider than the current ±{half_width_text(half, center)}; "
            "run `seatrial baseline update` to compute bounds from the runs"
        )
    # Around the middle of the bounds, not the center: no side must get narrower.
    lower, upper = around(middle(bound, half), new, bound)
    check_cap(lower, upper, center, entry, why.force)
    cap = raised(cap_of(entry), new, center, why.force)
    method = re.sub(r", widened to [^,]*", "", entry.keys.method) or "by hand"  # replaces an earlier width
    values = {
        "lower": lower,
        "upper": upper,
        "method": f"{method}, widened to {half_width_text(new, center)}",
        "floor": min(cap, rounded_up(new / abs(center))),
        "cap": cap,
        "state": str(BoundState.USABLE),
        "why": None,
    }
    what = f"widened from ±{half_width_text(half, center)} to ±{half_width_text(new, center)}"
    edit = Edit(entry.benchmark, entry.metric, values, why.of(what))
    return Updated(edit, (f"{what}; the floor is raised to match, so the next update keeps it",))


def _newest_level(chosen: MetricHistory, bound: Bound, center: float) -> list[Point]:
    """The runs of the level to center on. Raises Refused."""
    good = [point for point in chosen.points if point.good and math.isfinite(point.value)]
    if not good:
        raise Refused("nothing to center on: no run succeeded")
    side = _side(good[-1].value, bound)
    if side:
        return list(takewhile(lambda point: _side(point.value, bound) == side, reversed(good)))[::-1]
    if shift := shift_of(bound, recent_runs(chosen.series, bound)):
        return good[next(index for index, point in enumerate(good) if point.run == shift.run) :]
    from seatrial.stats.changes import change_points
    from seatrial.stats.clean import run_starts

    starts = run_starts([point.run for point in good])
    changes = change_points([median(point.value for point in good[a:b]) for a, b in pairwise([*starts, len(good)])])
    if not changes:
        newest, span = value_text(good[-1].value, bound.unit), pair_text(bound.lower, bound.upper, bound.unit, " to ")
        raise Refused(
            f"nothing to change: the last run, {newest}, is within the bounds {span}, and no newer level was "
            "found; run `seatrial baseline update` to compute bounds from all runs"
        )
    last = changes[-1]
    if abs(center - last.after) <= abs(center - last.before):
        levels = f"{value_text(last.before)} → {value_text(last.after)}"
        raise Refused(
            "nothing to change: the last run is within bounds, and the bounds match the newest level (since run "
            f"{good[starts[last.index]].run}, {levels}); run `seatrial baseline update` to compute new bounds"
        )
    return good[starts[last.index] :]


def _side(value: float, bound: Bound) -> int:
    if bound.upper is not None and value > bound.upper:
        return 1
    return -1 if bound.lower is not None and value < bound.lower else 0


def half_of(entry: BaselineEntry) -> float:
    """The half-width, in the unit of the metric. Raises Refused if the entry is disabled or has no bounds."""
    bound = entry.bound
    if bound.state is BoundState.DISABLED:
        raise Refused(f"the entry is disabled: {bound.why}")
    if bound.lower is not None and bound.upper is not None:
        # A lower bound of 0 may have been clamped; then the upper side gives the width.
        cut = bound.lower == 0 and bound.center is not None and bound.center < bound.upper
        return bound.upper - (bound.center or 0.0) if cut else (bound.upper - bound.lower) / 2
    if bound.center is not None and bound.upper is not None:
        return bound.upper - bound.center
    if bound.center is not None and bound.lower is not None:
        return bound.center - bound.lower
    raise Refused("the entry has no bounds yet; run `seatrial baseline update` to compute them")


def middle(bound: Bound, half: float) -> float:
    return bound.upper - half if bound.upper is not None else (bound.lower or 0.0) + half


def around(center: float, half: float, bound: Bound) -> tuple[float | None, float | None]:
    """Bounds around the center. Open sides stay open; non-negative lower bounds stay non-negative."""
    lower = None
    if bound.lower is not None:
        lower = max(0.0, center - half) if bound.lower >= 0 and center >= 0 else center - half
    return lower, None if bound.upper is None else center + half


def cap_of(entry: BaselineEntry | None) -> float:
    return CAP if entry is None or entry.keys.cap is None else entry.keys.cap


def check_cap(lower: float | None, upper: float | None, center: float, entry: BaselineEntry, force: bool) -> None:
    half = relative_half_width(Bound(entry.metric, lower, upper, center=center))
    if half is not None and half > cap_of(entry) and not force:
        raise Refused(
            f"±{half:.1%} exceeds the cap of ±{cap_of(entry):.0%} and would miss most regressions; use --force to set "
            "it anyway, or run `seatrial baseline update` to compute bounds from the runs"
        )


def raised(cap: float, half: float | None, center: float | None, force: bool) -> float:
    """The cap of the entry, raised to a forced half-width so that the file stays consistent."""
    share = half / abs(center) if half is not None and center else 0.0
    return rounded_up(share) if force and share > cap else cap


def rounded_up(share: float) -> float:
    """Rounds up to a hundredth of a percent."""
    return math.ceil(share * 1e4 - 1e-6) / 1e4


def half_width_text(half: float, center: float) -> str:
    return f"{half / abs(center):.2%}" if center else value_text(half)
