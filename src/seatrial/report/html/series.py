"""The series of a run as a part of its HTML report: what moved, and each figure so far."""

from seatrial.report.html.resource_charts import HEIGHT, WIDTH
from seatrial.report.html.templates import template
from seatrial.report.terminal.chart import svg_chart
from seatrial.report.text import count, one_line
from seatrial.report.trend.describe import (
    bound_of,
    change_text,
    figure,
    left_out_text,
    one_day,
    points_text,
    precision_text,
    span,
    title,
    together_text,
)
from seatrial.report.trend.series import RunSeries

MOST_DRAWN = 60
MOST_GROUPS = 20
MOST_CHANGES = 9


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
        bound_of=bound_of,
        change_text=change_text,
        together_text=together_text,
        left_out_text=left_out_text,
        points_text=points_text,
        timed=one_day(made.series),
        one_day=one_day,
        span=span,
        title=title,
        figure=figure,
        count=count,
    )
    return rendered
