"""The metrics table: last value, deviation, position within the bounds, and past runs as dots."""

from collections.abc import Iterable

from seatrial.job.units import count
from seatrial.report.html.plot import Frame
from seatrial.report.view import sentences
from seatrial.report.view.cell import CellView
from seatrial.report.view.over_runs import metric_plot
from seatrial.report.view.series import RunSeries, SeriesView, bound_levels
from seatrial.report.view.words import commit_text, date_text, grouped, metric_or_open, percent_text

SPARK_WIDTH = 270
GAUGE_WIDTH = 100
GAUGE_SPAN = 1.6  # half-width of a gauge, in half-widths of the bounds; values beyond are drawn at its end
MOST_DOTS = 120
_MOST_LINES = 24  # visible without expanding; groups are not split
_MOST_GROUPS = 3  # sentences about changes at one commit
_MOST_CHANGES = 9
_REPEAT = "repeat"


class MetricPanel:
    """All metrics of a run; `cells` are the cells of the same run."""

    def __init__(self, made: RunSeries, cells: Iterable[CellView] = ()) -> None:
        by_benchmark: dict[str, CellView] = {}
        for cell in cells:
            by_benchmark.setdefault(cell.benchmark, cell)
        numbered = [(number, view) for number, view in enumerate(made.series) if view.points]
        groups = grouped(numbered, lambda one: f"{one[1].trial}: {sentences.series_title(one[1])}")
        self.more = [MetricGroup(title, of, by_benchmark) for title, of in groups.items()]
        self.more.sort(key=lambda group: (not group.judged, group.state == "passed"))  # those that need attention first
        self.groups: list[MetricGroup] = []  # visible without expanding: those with bounds or changes
        while self.more and self.more[0].judged and sum(group.number for group in self.groups) < _MOST_LINES:
            self.groups.append(self.more.pop(0))
        self.lines = [line for group in (*self.groups, *self.more) for line in group.lines]
        points = [point for view in made.series for point in view.points]
        times = [point.at_s for point in points]
        runs = count(len({point.run for point in points}), "run")
        self.period = f"{runs}, {sentences.period_text(min(times), max(times))}" if points else ""
        timed = sentences.one_day(made.series)
        # Changes grouped by commit, newest first.
        self.moved = [sentences.change_group_text(group, timed) for group in made.together[:_MOST_GROUPS]]
        self.left_out = made.left_out
        self.precision = sentences.precision_text(made.precision) if made.precision else ""


class MetricGroup:
    """One metric of one trial, with one line per cell."""

    def __init__(self, title: str, numbered: list[tuple[int, SeriesView]], cells: dict[str, CellView]) -> None:
        self.title, self.number = title, len(numbered)
        found = [cells[view.benchmark].axes for _, view in numbered if view.benchmark in cells]
        names = dict.fromkeys(axis for axes in found for axis in axes if axis != _REPEAT)  # repeats share a line
        axes = [axis for axis in names if len({axes.get(axis, "") for axes in found}) > 1]
        self.axes = " · ".join(axes)
        self.lines = [MetricLine(number, view, axes, cells.get(view.benchmark)) for number, view in numbered]
        self.lines.sort(key=lambda line: (line.state == "passed", not line.since))
        self.state: str = next((line.state for line in self.lines if line.state != "passed"), "passed")
        gauges = [line.gauge for line in self.lines if line.gauge is not None]
        inside = sum(not gauge.out for gauge in gauges)
        self.judged: bool = bool(gauges) or any(line.view.changes or line.state != "passed" for line in self.lines)
        self.within = f"{inside} of {len(gauges)} within bounds" if gauges else "no bounds yet"


class MetricLine:
    def __init__(self, number: int, view: SeriesView, axes: list[str], cell: CellView | None) -> None:
        self.view = view
        self.key = f"metric/{number}"  # of the fragment with its details
        named = [cell.axes.get(axis, "") or "–" for axis in axes] if cell else []
        self.name = " · ".join(named) or view.benchmark
        self.cell = cell.hash if cell else ""
        last = view.points[-1].value
        self.last = metric_or_open(last, view.unit)
        self.gauge = Gauge(view, levels) if (levels := bound_levels(view)) else None
        self.spark = Frame(metric_plot(view, last=MOST_DOTS), SPARK_WIDTH, spark=True)
        self.bound = sentences.series_bound_text(view)
        self.title = f"{view.name}: {sentences.points_text(view.points)}, {_range(view)}"
        centre = view.bound.center if view.bound else None
        better = centre is not None and (last < centre) == (view.better == "lower")
        out = (self.gauge is not None and self.gauge.out) or bool(view.shift)
        self.state = "faster" if out and better else "slower" if out or view.regression else "passed"
        # Relative to the center of the bounds, or to the previous run if there are none.
        compared = centre if levels else None
        if compared is None and len(view.points) > 1:
            compared = view.points[-2].value
        self.off = percent_text(last / compared - 1) if compared else ""
        change = view.changes[-1] if view.changes else None
        self.since = ""  # the level change that led to the current level
        if change and (change.way == "worse" or self.state != "passed"):
            where = f"commit {commit_text(change.commit)}" if change.commit else f"run {change.run}"
            when = date_text(change.at_s, sentences.one_day([view]))
            self.since = f"{percent_text(change.size)} since {when}, {where}"


class Gauge:
    """The position of the last value relative to the bounds, which are in the middle."""

    def __init__(self, view: SeriesView, levels: dict[str, float]) -> None:
        last = view.points[-1].value
        centre = view.bound.center if view.bound and view.bound.center is not None else last
        half = max(abs(level - centre) for level in levels.values()) or abs(centre) * 0.01 or 1.0

        def place(value: float) -> float:
            share = min(1.0, max(-1.0, (value - centre) / half / GAUGE_SPAN))
            return round((share + 1) / 2 * (GAUGE_WIDTH - 8) + 4, 1)

        self.left = place(levels.get("lower", centre - 2 * half))
        self.width = round(place(levels.get("upper", centre + 2 * half)) - self.left, 1)
        self.at = place(last)
        self.out = last < levels.get("lower", last) or last > levels.get("upper", last)


def metric_facts(view: SeriesView) -> list[str]:
    """Details of a metric, one line each."""
    period = sentences.period_text(view.points[0].at_s, view.points[-1].at_s)
    conditions = f", conditions /{view.fingerprint}" if view.fingerprint else ""
    timed = sentences.one_day([view])
    facts = [
        f"{sentences.points_text(view.points)}, {period}, {_range(view)}{conditions}",
        sentences.series_bound_text(view),
        f"not used for the bounds: {sentences.left_out_text(view)}" if view.left_out else "",
        *(sentences.change_text(change, view.unit, timed) for change in view.changes[-_MOST_CHANGES:]),
        *sentences.open_texts(view),
    ]
    return [fact for fact in facts if fact]


def _range(view: SeriesView) -> str:
    values = [point.value for point in view.points]
    return f"{metric_or_open(min(values), view.unit)} to {metric_or_open(max(values), view.unit)}"
