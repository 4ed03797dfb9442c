"""New bounds of one entry: made from the history, moved to a new level, or widened. Data in, an Edit out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import median
from typing import Any

from seatrial.engine.baseline.place import Chosen
from seatrial.job import Bound, BoundState
from seatrial.record.history import Point
from seatrial.stats.bounds import CAP, FALSE_ALARM, FLOOR, LEAST, Interval, prediction_interval
from seatrial.stats.clean import Cleaned, Past, clean
from seatrial.suite.baseline import OURS, THEIRS, Edit, Entry
from seatrial.suite.baseline.entry import relative_half_width, text_of


class Refused(Exception):
    """An entry stays as it is, and why."""


@dataclass(frozen=True)
class Updated:
    """A change of one entry, and what is worth knowing about it."""

    edit: Edit
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Why:
    """Who changes an entry: when, and for what reason; `force` allows bounds wider than the cap."""

    reason: str
    at_s: float
    force: bool = False

    def of(self, what: str) -> dict[str, str]:
        return {"at": text_of(self.at_s), "what": what, "why": self.reason}


def cleaned(points: Sequence[Point], better: str, entry: Entry | None) -> Cleaned:
    """Which runs a bound may be made from: see stats/clean.py. A level that a recenter accepted is in the entry."""
    start = _accepted(points, entry)
    past = [
        Past(point.value, point.good, point.alarm, _mark(point.mark), index == start)
        for index, point in enumerate(points)
    ]
    return clean(past, "higher" if better == "higher" else "lower")


def update(chosen: Chosen, entry: Entry | None, why: Why, hardware: str = "", form: str = OURS) -> Updated:
    """Bounds for one new run, from all runs that count. Raises Refused."""
    series, points = chosen.series, chosen.points
    if not series.better:
        raise Refused(f"{series.metric} does not say whether lower or higher is better, so it can have no bound")
    if not points:
        raise Refused(f"no run in that window ({chosen.left})")
    sorted_out = cleaned(points, series.better, entry)
    interval = prediction_interval(
        [points[index].value for index in sorted_out.used],
        FALSE_ALARM if entry is None or entry.bound.false_alarm is None else entry.bound.false_alarm,
        FLOOR if entry is None or entry.floor is None else entry.floor,
        _cap(entry),
        LEAST,
    )
    state = _state(interval, entry, why.force, form)
    outliers = {sorted_out.used[place]: "an outlier among the others" for place in interval.outliers}
    used = [index for index in sorted_out.used if index not in outliers]
    values: dict[str, Any] = {
        "lower": _lower(interval.lower, points),
        "upper": interval.upper,
        "center": interval.center,
        "unit": series.unit or None,
        "better": series.better,
        "runs": interval.n,
        "since": text_of(points[used[0]].at_s) if used else None,
        "method": interval.method,
        "false_alarm": interval.false_alarm,
        "floor": FLOOR if entry is None or entry.floor is None else entry.floor,
        "cap": _raised(_cap(entry), interval.half_width, interval.center, why.force),
        "state": str(state),
        "why": interval.why if state is not BoundState.USABLE else None,
        "fingerprint": series.fingerprint or None,
        "hardware": hardware or None,
        "used": list(dict.fromkeys(points[index].run for index in used)),
        "left_out": _grouped(points, {**sorted_out.left_out, **outliers}),
    }
    changed = _changed(points, sorted_out)
    if changed or entry is None or not entry.accepted:  # else the last change is the one that was accepted
        values["changed"] = changed
    what = f"updated from {interval.n} of {len(points)} runs"
    edit = Edit(series.benchmark, series.metric, values, why.of(what), untrue=entry.invented if entry else ())
    return Updated(edit, _notes(chosen, sorted_out, interval, state))


def recenter(chosen: Chosen, entry: Entry, why: Why) -> Updated:
    """The same width around the level of the newest runs. Raises Refused.

    The newest level: the last runs that are out of the bounds on the same side; when the last one is inside, the runs
    since the last change of the level.
    """
    bound = entry.bound
    half = _half(entry)
    if bound.fingerprint and chosen.series.fingerprint != bound.fingerprint:
        raise Refused(
            f"the newest runs are of another configuration or other hardware ({chosen.series.fingerprint}, the entry "
            f"is of {bound.fingerprint}), so its width may not fit them; `seatrial baseline update` makes new bounds"
        )
    good = [point for point in chosen.points if point.good and math.isfinite(point.value)]
    level = _newest_level(good, bound)
    if not level:
        raise Refused("there is no run that ended well, so there is no level to follow")
    regressions = [point.run for point in level if point.mark == "regression"]
    if regressions and not why.force:
        raise Refused(f"run {regressions[0]} is marked as a regression; --force accepts its level all the same")
    before = bound.center if bound.center is not None else _middle(bound, half)
    center = median(point.value for point in level)
    lower, upper = _around(center, half, bound)
    _check_cap(lower, upper, center, entry, why.force)
    first = level[0]
    method = f"{(entry.method or 'by hand').split(', recentered')[0]}, recentered on {_runs(len(level))}"
    values = {
        "lower": lower,
        "upper": upper,
        "center": center,
        "method": method,
        "cap": _raised(_cap(entry), half, center, why.force),
        "state": str(BoundState.USABLE),
        "why": None,
        "changed": {"run": first.run, "at": text_of(first.at_s), "before": before, "after": center},
        "accepted": {"run": first.run, "at": text_of(first.at_s)},
    }
    moved = center / before - 1 if before else 0.0
    worse = (moved > 0) is (bound.better == "lower") and moved != 0
    notes = [f"the level of {_runs(len(level))} from {first.run} on: {before:.4g} → {center:.4g} ({moved:+.1%})"]
    if worse:
        notes.append("that is worse than before: from now on it is in order")
    what = f"recentered from {before:.4g} to {center:.4g}, on run {first.run}"
    edit = Edit(entry.benchmark, entry.metric, values, why.of(what), untrue=entry.invented)
    return Updated(edit, tuple(notes))


def widen(entry: Entry, why: Why, by: float | None = None, to: float | None = None) -> Updated:
    """A width `by` a share larger, or of `to` a share of the center. It becomes the floor too. Raises Refused."""
    bound, half = entry.bound, _half(entry)
    center = bound.center if bound.center is not None else _middle(bound, half)
    new = half * (1 + by) if by is not None else abs(center) * (to or 0.0)
    if not new > half:
        raise Refused(
            f"{_percent(new, center)} to each side is no wider than the {_percent(half, center)} that it has; "
            "`seatrial baseline update` makes bounds that fit the runs"
        )
    # Around the middle of the bounds, wherever the center is said to be: the other side must not get narrower.
    lower, upper = _around(_middle(bound, half), new, bound)
    _check_cap(lower, upper, center, entry, why.force)
    share = _up(new / abs(center)) if center else None
    values = {
        "lower": lower,
        "upper": upper,
        "floor": share,
        "cap": _raised(_cap(entry), new, center, why.force),
        "state": str(BoundState.USABLE),
        "why": None,
    }
    what = f"widened from {_percent(half, center)} to {_percent(new, center)} to each side"
    edit = Edit(entry.benchmark, entry.metric, values, why.of(what))
    return Updated(edit, (f"{what}; the floor is now the same, so that the next update keeps it",))


def _state(interval: Interval, entry: Entry | None, force: bool, form: str) -> BoundState:
    """Refuses to put something worse in the place of bounds that are in use, or where it could not be told."""
    state = BoundState(interval.state)
    if state is BoundState.UNUSABLE and force and interval.upper is not None:
        return BoundState.USABLE
    if state is BoundState.USABLE:
        return state
    forced = "; --force takes them all the same" if state is BoundState.UNUSABLE else ""
    bound = entry.bound if entry is not None else None
    if bound and bound.state is BoundState.USABLE and (bound.lower is not None or bound.upper is not None):
        raise Refused(f"{interval.why}; the bounds that it has stay{forced}")
    if form == THEIRS:
        raise Refused(f"{interval.why}; an entry of torchprime's file always counts, so none is made{forced}")
    return state


def _notes(chosen: Chosen, found: Cleaned, interval: Interval, state: BoundState) -> tuple[str, ...]:
    notes = []
    if state is not BoundState.USABLE:
        notes.append(f"{state}, so nothing is judged by it yet: {interval.why}")
    if chosen.left:
        notes.append(chosen.left)
    if found.open_regression is not None:
        run = chosen.points[found.open_regression].run
        notes.append(f"a regression is open since run {run}; `seatrial baseline recenter` accepts its level")
    return tuple(notes)


def _newest_level(good: list[Point], bound: Bound) -> list[Point]:
    if not good:
        return []
    side = _side(good[-1].value, bound)
    if side:
        return list(takewhile(lambda point: _side(point.value, bound) == side, reversed(good)))[::-1]
    from seatrial.stats.change_points import change_points

    changes = change_points([point.value for point in good])
    if not changes:
        raise Refused("the last run is within the bounds and the level did not change, so there is nothing to follow")
    return good[changes[-1].index :]


def _side(value: float, bound: Bound) -> int:
    if bound.upper is not None and value > bound.upper:
        return 1
    return -1 if bound.lower is not None and value < bound.lower else 0


def _half(entry: Entry) -> float:
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


def _middle(bound: Bound, half: float) -> float:
    if bound.upper is not None:
        return bound.upper - half
    return (bound.lower or 0.0) + half


def _around(center: float, half: float, bound: Bound) -> tuple[float | None, float | None]:
    """Open sides stay open; what was never negative does not become so."""
    lower = None if bound.lower is None else center - half
    if lower is not None and bound.lower is not None and bound.lower >= 0 and center >= 0:
        lower = max(0.0, lower)
    return lower, None if bound.upper is None else center + half


def _lower(lower: float | None, points: Sequence[Point]) -> float | None:
    """No figure that was never negative needs a negative bound."""
    return max(0.0, lower) if lower is not None and all(point.value >= 0 for point in points) else lower


def _cap(entry: Entry | None) -> float:
    return CAP if entry is None or entry.cap is None else entry.cap


def _check_cap(lower: float | None, upper: float | None, center: float, entry: Entry, force: bool) -> None:
    half = relative_half_width(Bound(entry.metric, lower, upper, center=center))
    if half is not None and half > _cap(entry) and not force:
        raise Refused(
            f"that is {half:.1%} to each side, more than the cap of {_cap(entry):.0%}: it would find next to nothing; "
            "--force does it all the same, `seatrial baseline update` makes bounds that fit the runs"
        )


def _raised(cap: float, half: float | None, center: float | None, force: bool) -> float:
    """The cap of the entry; what was forced raises it, so that the file does not contradict itself."""
    share = half / abs(center) if half is not None and center else 0.0
    return _up(share) if force and share > cap else cap


def _up(share: float) -> float:
    """Rounded up to a hundredth of a percent."""
    return math.ceil(share * 1e4 - 1e-6) / 1e4


def _accepted(points: Sequence[Point], entry: Entry | None) -> int | None:
    if entry is None or not (entry.accepted or entry.accepted_s is not None):
        return None
    for index, point in enumerate(points):
        if point.run == entry.accepted:
            return index
    if entry.accepted_s is None:
        return None
    return next((index for index, point in enumerate(points) if point.at_s >= (entry.accepted_s or 0.0)), None)


def _mark(word: str) -> Any:
    return word if word in ("false-alarm", "regression", "fixed") else ""


def _grouped(points: Sequence[Point], left_out: dict[int, str]) -> dict[str, list[str]] | None:
    grouped: dict[str, list[str]] = {}
    for index, reason in sorted(left_out.items()):
        runs = grouped.setdefault(reason, [])
        if points[index].run not in runs:
            runs.append(points[index].run)
    return grouped or None


def _changed(points: Sequence[Point], found: Cleaned) -> dict[str, Any] | None:
    if not found.changes:
        return None
    last = found.changes[-1]
    point = points[last.index]
    return {"run": point.run, "at": text_of(point.at_s), "before": last.before, "after": last.after}


def _percent(half: float, center: float) -> str:
    return f"{half / abs(center):.2%}" if center else f"{half:.4g}"


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"
