"""Metrics, one line each: the last value, how far it is off inside its bounds, and all runs so far as dots."""

from collections.abc import Iterable
from dataclasses import dataclass

from seatrial.job.units import count
from seatrial.record.history import Point
from seatrial.report.view.cell import CellView
from seatrial.report.view.sentences import (
    change_group_text,
    change_text,
    left_out_text,
    one_day,
    period_text,
    points_text,
    precision_text,
    series_bound_text,
    series_title,
)
from seatrial.report.view.series import LevelChange, RunSeries, Scale, SeriesView, bound_levels
from seatrial.report.view.words import commit_text, date_text, metric_or_open, percent_text

SPARK_WIDTH, SPARK_HEIGHT = 270, 20
GAUGE_WIDTH = 100
GAUGE_SPAN = 1.6  # of a gauge, in bounds: what is further out stands at its end
MOST_DOTS = 120
_MOST_LINES = 24  # in sight; a group is never cut
_MOST_GROUPS = 3  # sentences of what moved together
_MOST_CHANGES = 9
_REPEAT = "repeat"


@dataclass(frozen=True)
class Spark:
    """In the SVG's own units."""

    dots: str  # a path
    alarms: str  # the same, of those that were called slower or faster
    band: tuple[float, float] | None  # top and height of the bounds
    changes: list[float]
    last: tuple[float, float]


@dataclass(frozen=True)
class Gauge:
    """Where the last value is: the bounds in the middle of it."""

    left: float
    width: float
    at: float
    out: bool


@dataclass(frozen=True)
class MetricLine:
    view: SeriesView
    key: str  # of the piece with all that is known of it
    name: str  # values of the axes of its group
    cell: str  # hash of a cell of the run that it is of
    last: str
    off: str  # from the centre of its bounds, or from the run before
    state: str  # slower, faster or passed
    gauge: Gauge | None
    spark: Spark
    since: str  # of the change that it is at
    bound: str
    title: str  # of its picture, in words


@dataclass(frozen=True)
class MetricGroup:
    """One metric of one trial, a line for each of its cells."""

    title: str
    axes: str
    lines: list[MetricLine]
    within: str

    @property
    def number(self) -> int:
        return len(self.lines)

    @property
    def state(self) -> str:
        return next((line.state for line in self.lines if line.state != "passed"), "passed")


@dataclass(frozen=True)
class MetricPanel:
    groups: list[MetricGroup]  # those that need somebody first
    more: list[MetricGroup]  # that are not in sight at once
    period: str
    moved: list[str]  # what moved together, the newest first
    left_out: int
    precision: str

    @property
    def lines(self) -> list[MetricLine]:
        return [line for group in (*self.groups, *self.more) for line in group.lines]


def metric_panel(made: RunSeries, cells: Iterable[CellView] = ()) -> MetricPanel:
    """`cells`: of the run that the series are of."""
    by_benchmark: dict[str, CellView] = {}
    for cell in cells:
        by_benchmark.setdefault(cell.benchmark, cell)
    groups: dict[tuple[str, str], list[tuple[int, SeriesView]]] = {}
    for number, view in enumerate(made.series):
        if view.points:
            groups.setdefault((view.trial, series_title(view)), []).append((number, view))
    made_groups = [_group(f"{trial}: {title}", views, by_benchmark) for (trial, title), views in groups.items()]
    made_groups.sort(key=lambda group: group.state == "passed")
    shown: list[MetricGroup] = []
    while made_groups and (not shown or sum(len(group.lines) for group in shown) < _MOST_LINES):
        shown.append(made_groups.pop(0))
    timed = one_day(made.series)
    moved = [change_group_text(group, timed) for group in made.together[:_MOST_GROUPS]]
    precision = precision_text(made.precision) if made.precision else ""
    return MetricPanel(shown, made_groups, _period(made.series), moved, made.left_out, precision)


def _period(views: list[SeriesView]) -> str:
    points = [point for view in views for point in view.points]
    if not points:
        return ""
    runs = count(len({point.run for point in points}), "run")
    return f"{runs}, {period_text(min(point.at_s for point in points), max(point.at_s for point in points))}"


def metric_facts(view: SeriesView) -> list[str]:
    """All that is known of a metric, a sentence each."""
    period = period_text(view.points[0].at_s, view.points[-1].at_s)
    conditions = f", conditions /{view.fingerprint}" if view.fingerprint else ""
    facts = [
        f"{points_text(view.points)}, {period}, {_range(view)}{conditions}",
        series_bound_text(view),
        f"not used for the bound: {left_out_text(view)}" if view.left_out else "",
        *(change_text(change, view.unit, one_day([view])) for change in view.changes[-_MOST_CHANGES:]),
        f"A regression is open since run {view.regression}." if view.regression else "",
    ]
    return [fact for fact in facts if fact]


def _group(title: str, numbered: list[tuple[int, SeriesView]], cells: dict[str, CellView]) -> MetricGroup:
    axes = _varying([cells[view.benchmark].axes for _, view in numbered if view.benchmark in cells])
    lines = [_line(number, view, axes, cells.get(view.benchmark)) for number, view in numbered]
    lines.sort(key=lambda line: (line.state == "passed", not line.since))
    bounded = [line for line in lines if line.gauge is not None]
    inside = sum(not line.gauge.out for line in bounded if line.gauge is not None)
    within = f"{inside} of {len(bounded)} within bounds" if bounded else "no bounds yet"
    return MetricGroup(title, " · ".join(axes), lines, within)


def _varying(found: list[dict[str, str]]) -> list[str]:
    """Axes that tell the lines of a table apart; repeats are one line."""
    names = dict.fromkeys(axis for axes in found for axis in axes if axis != _REPEAT)
    return [axis for axis in names if len({axes.get(axis, "") for axes in found}) > 1]


def _line(number: int, view: SeriesView, axes: list[str], cell: CellView | None) -> MetricLine:
    last = view.points[-1].value
    gauge = _gauge(view)
    change = view.changes[-1] if view.changes else None
    worse = change is not None and change.way == "worse"
    state = "slower" if view.regression or (gauge and gauge.out and not _better(view)) else "passed"
    if gauge and gauge.out and _better(view):
        state = "faster"
    named = [cell.axes.get(axis, "") or "–" for axis in axes] if cell else []
    return MetricLine(
        view=view,
        key=f"metric/{number}",
        name=" · ".join(named) or view.benchmark,
        cell=cell.hash if cell else "",
        last=metric_or_open(last, view.unit),
        off=_off(view),
        state=state,
        gauge=gauge,
        spark=_spark(view),
        since=_since(change, one_day([view])) if change and (worse or state != "passed") else "",
        bound=series_bound_text(view),
        title=f"{view.name}: {points_text(view.points)}, {_range(view)}",
    )


def _better(view: SeriesView) -> bool:
    """The last value is on the good side of the centre."""
    centre = view.bound.center if view.bound else None
    if centre is None:
        return False
    return (view.points[-1].value < centre) == (view.better == "lower")


def _range(view: SeriesView) -> str:
    values = [point.value for point in view.points]
    return f"{metric_or_open(min(values), view.unit)} to {metric_or_open(max(values), view.unit)}"


def _since(change: LevelChange, timed: bool) -> str:
    where = f"commit {commit_text(change.commit)}" if change.commit else f"run {change.run}"
    return f"{percent_text(change.size)} since {date_text(change.at_s, timed)}, {where}"


def _off(view: SeriesView) -> str:
    """To the centre of its bounds; without one to the run before."""
    last = view.points[-1].value
    centre = view.bound.center if view.bound and bound_levels(view) else None
    if centre is None and len(view.points) > 1:
        centre = view.points[-2].value
    return percent_text(last / centre - 1) if centre else ""


def _gauge(view: SeriesView) -> Gauge | None:
    levels = bound_levels(view)
    if not levels:
        return None
    last = view.points[-1].value
    centre = view.bound.center if view.bound and view.bound.center is not None else last
    half = max((abs(level - centre) for level in levels.values()), default=0.0) or abs(centre) * 0.01 or 1.0
    low = max(-1.0, (levels.get("lower", centre - 2 * half) - centre) / half / GAUGE_SPAN)
    high = min(1.0, (levels.get("upper", centre + 2 * half) - centre) / half / GAUGE_SPAN)
    at = min(1.0, max(-1.0, (last - centre) / half / GAUGE_SPAN))
    out = last < levels.get("lower", last) or last > levels.get("upper", last)

    def place(share: float) -> float:
        return round((share + 1) / 2 * (GAUGE_WIDTH - 8) + 4, 1)

    return Gauge(place(low), round(place(high) - place(low), 1), place(at), out)


def _spark(view: SeriesView) -> Spark:
    scale = Scale(view)
    first, span = view.points[0].at_s, view.points[-1].at_s - view.points[0].at_s

    def x(at_s: float) -> float:
        return round((at_s - first) / span * (SPARK_WIDTH - 4) + 2, 1) if span > 0 else SPARK_WIDTH - 2.0

    def y(value: float) -> float:
        return round(SPARK_HEIGHT - 2 - scale(value) * (SPARK_HEIGHT - 4), 1)

    points = view.points[-MOST_DOTS:]

    def dots(some: list[Point]) -> str:
        return "".join(f"M{x(point.at_s):g} {y(point.value):g}h0" for point in some)

    alarms = [point for point in points if point.alarm]
    levels = bound_levels(view)
    band = None
    if levels:
        top, bottom = y(levels.get("upper", scale.high)), y(levels.get("lower", scale.low))
        band = (top, round(max(1.0, bottom - top), 1))
    return Spark(
        dots(points),
        dots(alarms),
        band,
        [x(change.at_s) for change in view.changes if change.at_s >= first],
        (x(view.points[-1].at_s), y(view.points[-1].value)),
    )
