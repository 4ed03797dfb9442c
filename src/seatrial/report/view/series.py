"""Metric series for reports: bounds, level changes, alerts, and changes grouped by commit."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from seatrial.job import (
    METRICS,
    Better,
    Bound,
    BoundState,
    Level,
    RunResults,
    Unreadable,
    Verdict,
    flatten_metrics,
    read_json,
    unit_factor,
)
from seatrial.record.history import ACCEPTED, Alarm, History, Point, Series, recent_values
from seatrial.report.view.words import grouped

if TYPE_CHECKING:
    from seatrial.stats.changes import ChangePoint
    from seatrial.stats.clean import Past

POINTS_SHOWN = 400  # points read per series by default
MOST_OF_RUN = 500  # series per run report
SERIES_FILE = "series.json"  # in the run folder


class LevelChange(msgspec.Struct, frozen=True):
    """A level change of a series; `run` is the first run after it."""

    index: int  # of the point of `run`
    run: str
    at_s: float
    commit: str
    before: float
    after: float
    size: float  # relative: after / before - 1
    confidence: float
    way: str  # "worse", "better", or "" if the metric has no direction


class SeriesView(msgspec.Struct, frozen=True):
    benchmark: str
    trial: str
    fingerprint: str
    metric: str
    unit: str
    better: str
    points: list[Point]
    changes: list[LevelChange]
    bound: Bound | None = None
    unbounded: str = ""  # why bounds that were requested are missing
    left_out: dict[str, list[str]] = {}  # reason -> runs of the values not used for the bounds
    regression: str = ""  # first run of an open regression
    shift: str = ""  # `8 % above its baseline since run R (5 runs)`, if the last runs are part of a shift

    @property
    def name(self) -> str:
        return f"{self.benchmark} {self.metric}"


class ChangeGroup(msgspec.Struct, frozen=True):
    """Series that changed at the same commit, or at the same run if the commit is unknown."""

    commit: str
    run: str
    at_s: float
    moved: list[tuple[str, LevelChange]]  # series name, change


class Precision(msgspec.Struct, frozen=True):
    """How many alerts were real, according to their reviews."""

    alarms: int
    confirmed: int
    false: int
    accepted: int = 0  # not reviewed, but the new level was accepted

    @property
    def unjudged(self) -> int:
        return self.alarms - self.confirmed - self.false - self.accepted

    @property
    def share(self) -> float | None:
        judged = self.confirmed + self.false
        return self.confirmed / judged if judged else None


class RunSeries(msgspec.Struct, frozen=True):
    """The history of the metrics of one run."""

    run: str
    series: list[SeriesView]
    together: list[ChangeGroup]
    left_out: int = 0  # series not read, beyond MOST_OF_RUN
    precision: Precision | None = None


def view_series(series: Series, bounds: Iterable[Bound] | None = None) -> SeriesView:
    """The series with its level changes and bounds: those in `bounds`, or computed from its runs if that is None."""
    made = with_bound(with_changes(series))
    if bounds is None:
        return made
    known = [bound for bound in bounds if bound.metric == series.metric]
    why_not = [bound.why_not_for(series.settings) for bound in known]  # bounds for other conditions do not apply
    given = next((bound for bound, why in zip(known, why_not, strict=True) if not why), None)
    other = why_not[0] if known else ""
    why = "" if given or not series.better else other or "not in the baseline"
    # Whether a regression is open depends on the runs, not on the bounds.
    shift = _shift(made.points, series.unit, given)
    return msgspec.structs.replace(made, bound=given, unbounded=why, left_out={}, shift=shift)


def _shift(points: Sequence[Point], unit: str, bound: Bound | None) -> str:
    factor = unit_factor(unit, bound.unit) if bound else None
    if bound is None or factor is None or not bound.finds_shifts:
        return ""
    from seatrial.stats.shift import find_shift

    runs = [(run, value * factor) for run, value in recent_values(points, bound.since_s)]
    found = find_shift(runs, bound.lower, bound.upper, bound.center)
    return found.text if found else ""


def with_changes(series: Series) -> SeriesView:
    """The series with its level changes, without bounds: faster for many series."""
    from seatrial.stats.changes import change_points

    points = [point for point in series.points if math.isfinite(point.value)]
    good = [index for index, point in enumerate(points) if point.good]
    changes = change_points([points[index].value for index in good])
    return SeriesView(
        series.benchmark,
        series.trial,
        series.fingerprint,
        series.metric,
        series.unit,
        series.better,
        points,
        [_level_change(change, good[change.index], points[good[change.index]], series.better) for change in changes],
    )


def _level_change(change: "ChangePoint", index: int, point: Point, better: str) -> LevelChange:
    up = change.after > change.before
    way = "" if not better else "worse" if up == (better == "lower") else "better"
    size = change.size if math.isfinite(change.size) else math.copysign(1e9, change.after - change.before)
    return LevelChange(
        index, point.run, point.at_s, point.commit, change.before, change.after, size, change.confidence, way
    )


def with_bound(view: SeriesView) -> SeriesView:
    """Adds the bounds that `seatrial baseline update` would compute, and the runs that it leaves out."""
    from seatrial.stats.bounds import fit_bounds

    if not view.better or not view.points:
        return view
    better, points = cast(Better, view.better), view.points
    fit = fit_bounds(past_values(points), better)
    interval, used, opening = fit.interval, fit.used, fit.cleaned.open_regression
    runs = len({points[index].run for index in used})
    left_out: dict[str, list[str]] = {}
    for index, reason in fit.left_out.items():
        left_out.setdefault(reason, []).append(points[index].run)
    last = view.changes[-1] if view.changes else None
    bound = Bound(
        view.metric,
        interval.lower,
        interval.upper,
        better,
        view.unit,
        interval.center,
        runs,
        points[used[0]].at_s if used else None,
        interval.false_alarm,
        BoundState(interval.state),
        interval.why,
        view.fingerprint,
        Level(last.run, last.at_s, last.before, last.after) if last else None,
        "the history",
        len(used) if len(used) > runs else 0,
    )
    opened = points[opening].run if opening is not None else ""
    shift = _shift(points, view.unit, bound)
    return msgspec.structs.replace(view, bound=bound, left_out=left_out, regression=opened, shift=shift)


def past_values(points: Sequence[Point]) -> "list[Past]":
    """The points as input of `clean_series`; accepted are those of the newest accepted level."""
    from seatrial.stats.clean import Past

    start = max((index for index, point in enumerate(points) if point.mark == ACCEPTED), default=0)
    return [
        Past(
            point.value,
            point.good,
            point.alarm,
            cast(Any, "" if point.mark == ACCEPTED else point.mark),
            point.accepted and index >= start,
            point.run,
        )
        for index, point in enumerate(points)
    ]


def unjudged_alarms(points: Iterable[Point]) -> list[Point]:
    """Alerts that are not reviewed."""
    return [point for point in points if point.alarm and not point.mark and not point.accepted]


def group_changes(views: Iterable[SeriesView], least: int = 1) -> list[ChangeGroup]:
    """Level changes grouped by commit, newest first; only groups of at least `least` series."""
    every = [(one.name, moved) for one in views for moved in one.changes]
    made = []
    for moves in grouped(every, lambda move: move[1].commit or f"run {move[1].run}").values():
        if len({name for name, _ in moves}) >= least:
            first = min((moved for _, moved in moves), key=lambda moved: (moved.at_s, moved.run))
            made.append(ChangeGroup(first.commit, first.run, first.at_s, moves))
    return sorted(made, key=lambda group: (-group.at_s, group.run))


def alarm_precision(alarms: Iterable[Alarm]) -> Precision:
    marks = [alarm.mark for alarm in alarms]
    confirmed = sum(mark in ("regression", "fixed") for mark in marks)
    return Precision(len(marks), confirmed, marks.count("false-alarm"), marks.count(ACCEPTED))


def run_series(history: History, results: RunResults, bounds: Mapping[str, Iterable[Bound]] | None = None) -> RunSeries:
    """The series of all metrics of this run that have a direction, alerts first.

    `bounds` are those used in the run, by benchmark; series without one get bounds computed from their runs. Raises
    HistoryError.
    """
    names = history.names(run=results.run, judged=True)
    alarmed = {cell.benchmark for cell in results.cells if cell.verdict.value in ("slower", "faster")}
    names.sort(key=lambda series: series.benchmark not in alarmed)
    found = history.filled(names[:MOST_OF_RUN], POINTS_SHOWN)
    given = bounds or {}
    views = []
    for series in found:
        own = [bound for bound in given.get(series.benchmark, ()) if bound.metric == series.metric]
        views.append(view_series(series, own or None))
    benchmarks = {series.benchmark for series in found}
    alarms = [alarm for alarm in history.alarms() if alarm.benchmark in benchmarks] if found else []
    left_out = max(0, len(names) - MOST_OF_RUN)
    return RunSeries(results.run, views, group_changes(views), left_out, alarm_precision(alarms))


def write_series(folder: Path, made: RunSeries) -> None:
    """Writes the series next to the results, so that reports can be rendered without the history."""
    from seatrial.record import write_whole

    write_whole(folder / SERIES_FILE, msgspec.json.encode(made))


def read_series(folder: Path) -> RunSeries | None:
    """None if the file is missing or unreadable; the report then has no series."""
    try:
        return read_json(folder / SERIES_FILE, RunSeries)
    except (OSError, Unreadable):
        return None


# The y axis of charts.


_NEAR = 0.05  # bounds within this share of the values are always drawn


class Scale:
    """Maps values to heights: 0 is the bottom of the chart, 1 the top."""

    def __init__(self, view: SeriesView) -> None:
        values = [point.value for point in view.points]
        self.bounds = bound_levels(view)
        low, high = min(values), max(values)
        # A distant bound would flatten the curve, so only near bounds are drawn.
        span = (high - low) or abs(high) * 0.02 or 1.0
        below, above = max(2 * span, _NEAR * abs(low)), max(2 * span, _NEAR * abs(high))
        near = [level for level in self.bounds.values() if low - below <= level <= high + above]
        self.low, self.high = min([low, *near]), max([high, *near])
        if self.low == self.high:
            self.low, self.high = self.low - span / 2, self.high + span / 2

    def __call__(self, value: float) -> float:
        # Halved first, because the difference of two floats may overflow.
        return min(1.0, max(0.0, (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)))

    def shows(self, value: float) -> bool:
        return self.low <= value <= self.high


def bound_levels(view: SeriesView) -> dict[str, float]:
    """The finite bounds of a usable entry, upper first."""
    bound = view.bound
    if bound is None or bound.state is not BoundState.USABLE:
        return {}
    levels = {"upper": bound.upper, "lower": bound.lower}
    return {side: level for side, level in levels.items() if level is not None and math.isfinite(level)}


def bounds_outside(view: SeriesView) -> list[str]:
    """Which bounds, "upper" or "lower", are outside the chart."""
    scale = Scale(view)
    return [side for side, level in scale.bounds.items() if not scale.shows(level)]


# Reasons for `--strict` to fail: metrics without bounds, and open regressions within bounds.


_JUDGED = (Verdict.PASSED, Verdict.SLOWER, Verdict.FASTER, Verdict.FAILED, Verdict.XFAIL, Verdict.XPASS)


def unbounded_metrics(results: RunResults) -> list[str]:
    """Metrics with a direction that no bounds checked, each with the reason."""
    found: dict[str, None] = {}
    for cell in results.cells:
        judged = {f.check: f for f in cell.findings if f.step == METRICS}
        none = judged["bounds"].message if "bounds" in judged else ""
        none = none or "its trial has no `baseline`, or the baseline has no entry for it"
        for metric in flatten_metrics(cell.metrics):
            finding = judged.get(f"bounds {metric.name}")
            if metric.better and (finding is None or finding.verdict not in _JUDGED):
                why = finding.message if finding else none
                found[f"{cell.benchmark or cell.id} {metric.name} has no bounds: {why}"] = None
    return list(found)


def open_regressions(series: Iterable[Series]) -> list[str]:
    """Series with an open regression, and its first run."""
    views = (with_bound(with_changes(one)) for one in series)
    return [f"{view.name}: open regression since run {view.regression}" for view in views if view.regression]
