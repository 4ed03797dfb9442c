"""Computes the bounds of an entry from the history. Pure: returns an Edit."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from seatrial.baseline import adjust
from seatrial.baseline.adjust import cap_of, raised
from seatrial.baseline.edit import Edit, Refused, Updated, Why
from seatrial.baseline.models import OURS, THEIRS, BaselineEntry, text_of
from seatrial.baseline.selection import MetricHistory, runs_of, runs_text
from seatrial.job import BoundState, pair_text, unit_factor
from seatrial.record.history import MARKS, Point, Series
from seatrial.stats.bounds import FALSE_ALARM, FLOOR, LEAST_RUNS, MEASURED, Fit, Interval, fit_bounds
from seatrial.stats.clean import AFTER_MARKED, MARKED, UNEXPLAINED, WORSE, Cleaned, Past


def update(
    chosen: MetricHistory,
    entry: BaselineEntry | None,
    why: Why,
    hardware: str = "",
    form: str = OURS,
    accept: bool = False,
) -> Updated:
    """Computes bounds for the next run from all eligible runs. A level worse than the entry's is taken only with
    `accept`. Raises Refused."""
    series, points = chosen.series, chosen.points
    if not series.better:
        raise Refused(f"{series.metric} cannot have bounds: set `better: lower` or `better: higher`")
    if not points:
        raise Refused(f"no runs in this period ({chosen.left})")
    fit = fitted(points, series.better, entry)
    interval, found, left_out = fit.interval, fit.cleaned, fit.left_out
    used = [points[index] for index in fit.used]
    because = interval.why
    if interval.state == "recording" and len(used) > len(runs_of(used)):
        because = f"{runs_text(used)} (bounds need {LEAST_RUNS} runs)"
    state = _state(interval, entry, why.force, form, [because, *_left(chosen, found, left_out)])
    level = _level(interval, used, series, entry, accept) if state is BoundState.USABLE else None
    runs = runs_of(used)
    lower = interval.lower
    if lower is not None and all(point.value >= 0 for point in points):
        lower = max(0.0, lower)  # metrics that were never negative get no negative bound
    values: dict[str, Any] = {
        "lower": lower,
        "upper": interval.upper,
        "center": interval.center,
        "unit": series.unit or None,
        "better": series.better,
        "runs": len(runs),
        "figures": len(used) if len(used) > len(runs) else None,
        "since": text_of(used[0].at_s) if used else None,
        "width": None,
        "method": interval.method,
        "false_alarm": interval.false_alarm,
        "measured": MEASURED if interval.false_alarm == FALSE_ALARM else None,
        "floor": FLOOR if entry is None or entry.keys.floor is None else entry.keys.floor,
        "cap": raised(cap_of(entry), interval.half_width, interval.center, why.force),
        "state": str(state),
        "why": because if state is not BoundState.USABLE else None,
        "fingerprint": series.fingerprint or None,
        "conditions": series.conditions or None,
        "under_test": (chosen.tested.get(runs[-1]) if runs else None) or None,
        "hardware": hardware or None,
        "level": level,
        "used": None,  # written by Seatrial 0.1
        "left_out": dict(Counter(left_out.values())) or None,
    }
    if found.changes:
        last = found.changes[-1]
        since = points[last.index]
        values["changed"] = {"run": since.run, "at": text_of(since.at_s), "before": last.before, "after": last.after}
    elif entry is None or not (entry.keys.accepted and entry.keys.accepted.run):  # else keep the accepted change
        values["changed"] = None
    other = entry.bound.why_not_for(series.settings) if entry else ""
    what = f"{'recentered' if accept else 'updated'} from {len(used)} of {runs_text(points)}"
    what += " under other conditions" if accept else ""
    edit = Edit(series.benchmark, series.metric, values, why.of(what), untrue=entry.invented if entry else ())
    notes = [] if state is BoundState.USABLE else [f"{state}, not used for checks yet: {because}"]
    notes += [f"new bounds, because {other}"] if other else []
    notes += _left(chosen, found, left_out)
    if marked := overruled(points, entry):
        which = f"run {marked[0]} is" if len(marked) == 1 else f"{len(marked)} runs from {marked[0]} on are"
        notes.append(f"{which} marked as a regression, but used: `baseline recenter` accepted that level")
    useless = state is BoundState.UNUSABLE and (entry is None or entry.bound.state is state)
    too_noisy = because if useless else ""
    return Updated(edit, tuple(notes), used[0].run if accept and used else "", too_noisy)


def recenter(chosen: MetricHistory, entry: BaselineEntry, why: Why, hardware: str = "", form: str = OURS) -> Updated:
    """Centers bounds on the newest level, even if worse. Under other conditions computes new ones. Raises Refused."""
    if entry.bound.why_not_for(chosen.series.settings):
        return update(chosen, entry, why, hardware, form, accept=True)
    return adjust.recenter_entry(chosen, entry, why)


def _level(
    interval: Interval, used: Sequence[Point], series: Series, entry: BaselineEntry | None, accept: bool
) -> float | None:
    """The best level of the entry, if the new center is worse. Raises Refused if it is worse than chance explains. The
    best level is kept until a new one is accepted, so that small steps cannot add up to a large one."""
    center, bound = interval.center, entry.bound if entry else None
    if entry is None or bound is None or center is None or accept or (bound.lower is None and bound.upper is None):
        return None
    factor = unit_factor(bound.unit, series.unit)
    if factor is None:
        raise adjust.units_differ(bound, series)
    known = [entry.keys.level, bound.center, bound.upper if series.better == "lower" else bound.lower]
    best = next((value * factor for value in known if value is not None), None)
    if best is None:
        return None
    worse_by = center - best if series.better == "lower" else best - center
    chance = [(interval.half_width or 0.0) / math.sqrt(len(runs_of(used)) + 1)]
    if bound.center is not None and bound.runs and bound.lower is not None and bound.upper is not None:
        chance.append((bound.upper - bound.lower) / 2 * factor / math.sqrt(bound.runs + 1))
    if worse_by > max(WORSE * abs(best), math.hypot(*chance)):
        other = bound.why_not_for(series.settings)
        levels = pair_text(best, center, series.unit)
        raise Refused(
            f"the level of {runs_text(used)} is worse, {levels}{f' ({other})' if other else ''}; bounds unchanged; "
            "run `seatrial baseline recenter` to accept it"
        )
    return best if worse_by > 0 else None


def _state(interval: Interval, entry: BaselineEntry | None, force: bool, form: str, notices: list[str]) -> BoundState:
    """Raises Refused rather than replace usable bounds, or write unusable ones into torchprime's file."""
    state = BoundState(interval.state)
    if state is BoundState.UNUSABLE and force and interval.upper is not None:
        return BoundState.USABLE
    if state is BoundState.USABLE:
        return state
    forced = "; use --force to write them anyway" if state is BoundState.UNUSABLE else ""
    bound = entry.bound if entry is not None else None
    because, *more = notices
    rest = "".join(f"; {part}" for part in more)
    if bound and bound.state is BoundState.USABLE and (bound.lower is not None or bound.upper is not None):
        raise Refused(f"{because}; bounds unchanged{forced}{rest}")
    if form == THEIRS:
        raise Refused(f"{because}; no entry written, because torchprime would use it{forced}{rest}")
    return state


def _left(chosen: MetricHistory, found: Cleaned, left_out: dict[int, str]) -> list[str]:
    """Which runs were left out, why, and the commands to include them."""
    points, reasons = chosen.points, set(found.left_out.values())
    parts = [part for part in (chosen.left, counted_reasons(Counter(left_out.values()))) if part]
    if found.open_regression is not None:
        since = points[found.open_regression :]
        force = " --force" if any(point.good and point.mark == "regression" for point in since) else ""
        accepts = f"run `seatrial baseline recenter{force}` to accept its level"
        parts.append(f"a regression is open since run {since[0].run}; {accepts}")
    if reasons & {MARKED, AFTER_MARKED}:
        parts.append("run `seatrial history mark RUN --fixed` for the first fixed run")
    if UNEXPLAINED in reasons:
        last = max(index for index, why in found.left_out.items() if why == UNEXPLAINED)
        parts.append(f"run `seatrial history mark {points[last].run} --false-alarm` if that run was good")
    return parts


def fitted(points: Sequence[Point], better: str, entry: BaselineEntry | None) -> Fit:
    """The bounds from these points, and which points count. The entry has the level that recenter accepted."""
    accepted = _accepted(points, entry)
    past = []
    for index, point in enumerate(points):
        is_in = index in accepted
        mark: Any = "" if point.mark not in MARKS or (is_in and _is_overruled(point)) else point.mark
        past.append(Past(point.value, point.good, point.alarm, mark, is_in, point.run))
    return fit_bounds(
        past,
        "higher" if better == "higher" else "lower",
        FALSE_ALARM if entry is None or entry.bound.false_alarm is None else entry.bound.false_alarm,
        FLOOR if entry is None or entry.keys.floor is None else entry.keys.floor,
        cap_of(entry),
    )


def accepted_from(points: Sequence[Point], entry: BaselineEntry | None) -> int | None:
    """Index of the first run of the level that recenter accepted; None if there is none in `points`."""
    accepted = entry.keys.accepted if entry else None
    if accepted is None:
        return None
    found = next((index for index, point in enumerate(points) if point.run == accepted.run), None)
    if found is not None or accepted.at is None:
        return found
    return next((index for index, point in enumerate(points) if point.at_s >= accepted.at), None)


def overruled(points: Sequence[Point], entry: BaselineEntry | None) -> list[str]:
    """Runs marked as a regression that count anyway, because recenter accepted their level."""
    return [points[index].run for index in _accepted(points, entry) if _is_overruled(points[index])]


def counted_reasons(reasons: Mapping[str, int]) -> str:
    """`left out: 3 × the run failed; 1 × outlier`; empty when nothing is."""
    counts = Counter(reasons).most_common()
    return "left out: " + "; ".join(f"{count} × {why}" for why, count in counts) if counts else ""


def _accepted(points: Sequence[Point], entry: BaselineEntry | None) -> list[int]:
    """Indexes of the runs of the level that recenter accepted: its first, and later ones until the recenter."""
    start = accepted_from(points, entry)
    if entry is None or entry.keys.accepted is None or start is None:
        return []
    until_s = (entry.keys.accepted.until or 0.0) + 1  # times in the file are whole seconds
    return [start, *(index for index in range(start + 1, len(points)) if points[index].at_s < until_s)]


def _is_overruled(point: Point) -> bool:
    # If the history knows of the recenter, it removed earlier marks, so this mark is newer.
    return point.mark == "regression" and not point.accepted
