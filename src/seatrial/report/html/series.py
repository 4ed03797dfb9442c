"""The series of a run as a part of its HTML report: what moved, and a chart of each figure so far."""

from dataclasses import dataclass

from seatrial.report.html.resource_charts import HEIGHT, WIDTH
from seatrial.report.html.templates import template
from seatrial.report.text import count, one_line
from seatrial.report.trend.describe import (
    change_group_text,
    change_text,
    figure_text,
    left_out_text,
    one_day,
    period_text,
    points_text,
    precision_text,
    series_bound_text,
    series_title,
)
from seatrial.report.trend.scale import Scale, bound_levels, bounds_outside
from seatrial.report.trend.series import RunSeries, SeriesView

MOST_DRAWN = 60
MOST_GROUPS = 20
MOST_CHANGES = 9
_PAD = 4  # of the height of a chart, above and below


@dataclass(frozen=True)
class SvgChart:
    """Numbers in the SVG's own units."""

    line: str  # points of a polyline
    bounds: list[float]  # heights of the lower and the upper one
    changes: list[tuple[float, int]]  # place, number
    alarms: list[tuple[float, float, str]]  # place, height, verdict
    low: str
    high: str
    outside: list[str]


def render_series(made: RunSeries) -> str:
    """Markup to put into a page as it is; every foreign text in it is escaped. Empty when there is nothing to show."""
    if not made.series:
        return ""
    drawn = [view for view in made.series if view.points][:MOST_DRAWN]
    rendered: str = template("series.html.j2", one_line=one_line).render(
        made=made,
        drawn=[(view, svg_chart(view)) for view in drawn],
        left_out=made.left_out + len(made.series) - len(drawn),
        precision=precision_text(made.precision) if made.precision else "",
        most_groups=MOST_GROUPS,
        most_changes=MOST_CHANGES,
        width=WIDTH,
        height=HEIGHT,
        series_bound_text=series_bound_text,
        change_text=change_text,
        change_group_text=change_group_text,
        left_out_text=left_out_text,
        points_text=points_text,
        timed=one_day(made.series),
        one_day=one_day,
        period_text=period_text,
        series_title=series_title,
        figure_text=figure_text,
        count=count,
    )
    return rendered


def svg_chart(view: SeriesView) -> SvgChart:
    scale = Scale(view)
    step = WIDTH / max(1, len(view.points) - 1)

    def height(value: float) -> float:
        return round(HEIGHT - _PAD - scale(value) * (HEIGHT - 2 * _PAD), 1)

    placed = [(round(index * step, 1), height(point.value)) for index, point in enumerate(view.points)]
    values = [point.value for point in view.points]
    drawn = placed if len(placed) > 1 else [*placed, (float(WIDTH), placed[0][1])]
    return SvgChart(
        line=" ".join(f"{x:g},{y:g}" for x, y in drawn),
        bounds=[height(level) for level in bound_levels(view).values() if scale.shows(level)],
        changes=[(placed[moved.index][0], number) for number, moved in enumerate(view.changes, 1)],
        alarms=[(*placed[index], point.verdict) for index, point in enumerate(view.points) if point.alarm],
        low=figure_text(min(values), view.unit),
        high=figure_text(max(values), view.unit),
        outside=bounds_outside(view, scale),
    )
