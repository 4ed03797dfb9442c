"""Series of metrics for people: each with its bound, its changes of level and its alarms, and what moved together."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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
)
from seatrial.record.history import ACCEPTED, Alarm, History, Point, Series

if TYPE_CHECKING:
    from seatrial.stats.changes import ChangePoint
    from seatrial.stats.clean import Past

POINTS_SHOWN = 400  # points of each series that are read, unless more are asked for
MOST_OF_RUN = 500  # series that the report of a run reads
SERIES_FILE = "series.json"  # in the run folder


class LevelChange(msgspec.Struct, frozen=True):
    """A change of a series' level; `run` is the first one after it."""

    index: int  # of that run's point
    run: str
    at_s: float
    commit: str
    before: float
    after: float
    size: float  # relative: after / before - 1
    confidence: float
    way: str  # "worse", "better", or "" where it is not declared what is better


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
    unbounded: str = ""  # why there is no bound, where one was asked for
    left_out: dict[str, list[str]] = {}  # reason -> runs of the metrics that the bound is not made from
    regression: str = ""  # the first run of a regression that is still open

    @property
    def name(self) -> str:
        return f"{self.benchmark} {self.metric}"


class ChangeGroup(msgspec.Struct, frozen=True):
    """Series that moved at the same commit; at the same run, where no commit is known."""

    commit: str
    run: str
    at_s: float
    moved: list[tuple[str, LevelChange]]  # name of the series, its change


class Precision(msgspec.Struct, frozen=True):
    """How often alarms were right, as people judged them."""

    alarms: int
    confirmed: int
    false: int
    accepted: int = 0  # not judged, but their level was accepted: nothing is left to do

    @property
    def unjudged(self) -> int:
        return self.alarms - self.confirmed - self.false - self.accepted

    @property
    def share(self) -> float | None:
        judged = self.confirmed + self.false
        return self.confirmed / judged if judged else None


class RunSeries(msgspec.Struct, frozen=True):
    """What the history says of the metrics of one run."""

    run: str
    series: list[SeriesView]
    together: list[ChangeGroup]
    left_out: int = 0  # series of the run that were not read: it has too many
    precision: Precision | None = None


def view_series(series: Series, bounds: Iterable[Bound] | None = None) -> SeriesView:
    """The series with its changes, and with its bound: the one of `bounds` for it, else the one its runs give."""
    made = with_bound(with_changes(series))
    if bounds is None:
        return made
    known = [bound for bound in bounds if bound.metric == series.metric]
    why_not = [bound.why_not_for(series.settings) for bound in known]  # under other conditions it says nothing here
    given = next((bound for bound, why in zip(known, why_not, strict=True) if not why), None)
    other = why_not[0] if known else ""
    why = "" if given or not series.better else other or "the baseline has none for it"
    # Whether a regression is open is a question to the runs, whoever set the bound.
    return msgspec.structs.replace(made, bound=given, unbounded=why, left_out={})


def with_changes(series: Series) -> SeriesView:
    """The series with its changes alone: quick, for those of which there are many."""
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
    """With the bound that `seatrial baseline update` would make of its runs, and which of them that leaves out."""
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
    return msgspec.structs.replace(view, bound=bound, left_out=left_out, regression=opened)


def past_values(points: Sequence[Point]) -> "list[Past]":
    """The points as `clean` takes them; accepted are those of the newest such level."""
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
    """Alarms that nobody has judged yet."""
    return [point for point in points if point.alarm and not point.mark and not point.accepted]


def group_changes(views: Iterable[SeriesView], least: int = 1) -> list[ChangeGroup]:
    """All changes, those of one commit as one, the newest first; only where `least` series moved."""
    groups: dict[str, list[tuple[str, LevelChange]]] = {}
    for one in views:
        for moved in one.changes:
            groups.setdefault(moved.commit or f"run {moved.run}", []).append((one.name, moved))
    made = []
    for moves in groups.values():
        if len({name for name, _ in moves}) >= least:
            first = min((moved for _, moved in moves), key=lambda moved: (moved.at_s, moved.run))
            made.append(ChangeGroup(first.commit, first.run, first.at_s, moves))
    return sorted(made, key=lambda group: (-group.at_s, group.run))


def alarm_precision(alarms: Iterable[Alarm]) -> Precision:
    marks = [alarm.mark for alarm in alarms]
    confirmed = sum(mark in ("regression", "fixed") for mark in marks)
    return Precision(len(marks), confirmed, marks.count("false-alarm"), marks.count(ACCEPTED))


def run_series(history: History, results: RunResults, bounds: Mapping[str, Iterable[Bound]] | None = None) -> RunSeries:
    """The series of all metrics of this run that are declared better lower or higher, alarms first.

    `bounds` by benchmark are those that the run was judged by; a series without one gets what its runs give. Raises
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
    """Beside the results, so that a report can be made again without the history."""
    from seatrial.record import write_whole

    write_whole(folder / SERIES_FILE, msgspec.json.encode(made))


def read_series(folder: Path) -> RunSeries | None:
    """None when there are none, or none that can be read: a report is made without them."""
    try:
        return read_json(folder / SERIES_FILE, RunSeries)
    except (OSError, Unreadable):
        return None


# What a chart of a series spans: from its values and the bounds near them to heights.


_NEAR = 0.05  # of a metric: a bound that is so near to the runs is always drawn


class Scale:
    """From values to heights: 0 at the lowest that is drawn, 1 at the highest."""

    def __init__(self, view: SeriesView) -> None:
        values = [point.value for point in view.points]
        self.bounds = bound_levels(view)
        low, high = min(values), max(values)
        # A bound far away must not press the runs flat: it is drawn when it lies near them.
        span = (high - low) or abs(high) * 0.02 or 1.0
        below, above = max(2 * span, _NEAR * abs(low)), max(2 * span, _NEAR * abs(high))
        near = [level for level in self.bounds.values() if low - below <= level <= high + above]
        self.low, self.high = min([low, *near]), max([high, *near])
        if self.low == self.high:
            self.low, self.high = self.low - span / 2, self.high + span / 2

    def __call__(self, value: float) -> float:
        # Halved first: the span of two floats may be more than a float can hold.
        return min(1.0, max(0.0, (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)))

    def shows(self, value: float) -> bool:
        return self.low <= value <= self.high

    def band(self, y: Callable[[float], float]) -> tuple[float, float] | None:
        """Top and height of the bounds, where `y` are heights from the top of a picture; None without bounds."""
        if not self.bounds:
            return None
        top, bottom = y(self.bounds.get("upper", self.high)), y(self.bounds.get("lower", self.low))
        return top, round(max(1.0, bottom - top), 1)


def bound_levels(view: SeriesView) -> dict[str, float]:
    """Of a bound that is in use, the upper one first."""
    bound = view.bound
    if bound is None or bound.state is not BoundState.USABLE:
        return {}
    levels = {"upper": bound.upper, "lower": bound.lower}
    return {side: level for side, level in levels.items() if level is not None and math.isfinite(level)}


def bounds_outside(view: SeriesView) -> list[str]:
    """Which of the bounds, "upper" or "lower", lie outside what is drawn."""
    scale = Scale(view)
    return [side for side, level in scale.bounds.items() if not scale.shows(level)]


# What a run that must leave nothing open does not pass with: metrics that nothing judged, and regressions that are too
# small for their bounds, but not over.


_JUDGED = (Verdict.PASSED, Verdict.SLOWER, Verdict.FASTER, Verdict.FAILED, Verdict.XFAIL, Verdict.XPASS)


def unbounded_metrics(results: RunResults) -> list[str]:
    """Metrics that say which way is better, and were judged by no bounds; each with the reason."""
    found: dict[str, None] = {}
    for cell in results.cells:
        judged = {f.check: f for f in cell.findings if f.step == METRICS}
        none = judged["bounds"].message if "bounds" in judged else ""
        none = none or "its trial names no `baseline`, or that has no entry for it"
        for metric in flatten_metrics(cell.metrics):
            finding = judged.get(f"bounds {metric.name}")
            if metric.better and (finding is None or finding.verdict not in _JUDGED):
                why = finding.message if finding else none
                found[f"{cell.benchmark or cell.id} {metric.name} has no bounds: {why}"] = None
    return list(found)


def open_regressions(series: Iterable[Series]) -> list[str]:
    """Of each series whose level got worse and was not accepted: since which run."""
    views = (with_bound(with_changes(one)) for one in series)
    return [f"{view.name}: a regression is open since run {view.regression}" for view in views if view.regression]
