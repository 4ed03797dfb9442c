"""A run as one SVG image for a README or a chat: the grid of each trial, and the recent history of its metrics."""

from dataclasses import dataclass

from seatrial.job.units import count
from seatrial.report.html.plot import SPARK_HEIGHT, Frame
from seatrial.report.html.templates import render
from seatrial.report.view.cell import CellView
from seatrial.report.view.grid import Matrix
from seatrial.report.view.over_runs import metric_plot
from seatrial.report.view.run import RunView, first_rows
from seatrial.report.view.words import SYMBOLS, duration_text, fit, metric_or_open, one_line

_WIDTH = 960
_MARGIN = 16
LINE = 18  # height of a grid row
LABEL_WIDTH = 220
CHARACTER = 6.6  # approximate width of a character
LEAST_CELL, MOST_CELL = 12.0, 96.0
GRID_ROWS = 60  # of all grids together
_MOST_METRICS = 12
SPARK_WIDTH = 300


@dataclass(frozen=True)
class Box:
    """One box of a grid."""

    x: float
    y: float
    width: float
    state: str  # a verdict or `excluded`
    glyph: str
    title: str
    new: bool = False


class _Sheet:
    """The drawing so far; `y` is where the next line goes."""

    def __init__(self) -> None:
        self.y = float(_MARGIN)
        self.boxes: list[Box] = []
        self.labels: list[tuple[float, float, str, str]] = []  # x, y, text; title, head, row or note
        self.sparks: list[tuple[float, str, str, Frame]] = []  # y, name, last value, dots

    def label(self, text: str, kind: str, x: float = _MARGIN, columns: int = 140) -> None:
        self.labels.append((x, self.y + 12, fit(one_line(text), columns), kind))

    def write(self, text: str, kind: str) -> None:
        self.label(text, kind)
        self.y += LINE


def render_svg(run: RunView) -> str:
    sheet = _Sheet()
    sheet.write(f"{run.suite}: {run.verdict.value}", "title")
    counts = " · ".join(f"{number} {verdict.value}" for verdict, number in run.counts.items())
    excluded = f" · {run.not_run}" if run.excluded else ""
    sheet.write(f"{count(len(run.cells), 'cell')} in {duration_text(run.seconds)}: {counts}{excluded}", "note")
    if run.causes_sentence:
        sheet.write(run.causes_sentence, "head")
    sheet.y += LINE / 2
    left = GRID_ROWS
    for matrix in run.matrices:
        rows = first_rows(matrix, left)
        left -= len(rows)
        if rows:
            _grid(sheet, matrix, rows)
    if hidden := sum(len(matrix.rows) for matrix in run.matrices) - (GRID_ROWS - left):
        sheet.write(f"… and {count(hidden, 'more row')} in report.html", "note")
    _metrics(sheet, run)
    return render(
        "picture.svg.j2",
        width=_WIDTH,
        height=round(sheet.y + _MARGIN),
        line=LINE,
        label_width=LABEL_WIDTH,
        spark_width=SPARK_WIDTH,
        sheet=sheet,
        title=f"{run.suite}: {run.verdict.value}",
    )


def _grid(sheet: _Sheet, matrix: Matrix[CellView], rows: list[int]) -> None:
    each = min(MOST_CELL, max(LEAST_CELL, (_WIDTH - 2 * _MARGIN - LABEL_WIDTH) / max(1, len(matrix.columns))))
    shown = min(len(matrix.columns), int((_WIDTH - 2 * _MARGIN - LABEL_WIDTH) / each))
    more = f", the first {shown} of {count(len(matrix.columns), 'column')}" if shown < len(matrix.columns) else ""
    sheet.write(f"{matrix.trial}  {matrix.fixed}{more}", "head")
    room = int(each / CHARACTER)
    if room >= 3:
        for column, name in enumerate(matrix.columns[:shown]):
            sheet.label(name, "note", _MARGIN + LABEL_WIDTH + column * each, room)
        sheet.y += LINE
    for row in rows:
        sheet.label(matrix.rows[row], "row", columns=int(LABEL_WIDTH / CHARACTER) - 1)
        for column in range(shown):
            box = _box(matrix, row, column, _MARGIN + LABEL_WIDTH + column * each, sheet.y, each - 2)
            sheet.boxes += [box] if box else []
        sheet.y += LINE
    sheet.y += LINE / 2


def _box(matrix: Matrix[CellView], row: int, column: int, x: float, y: float, width: float) -> Box | None:
    cell = matrix.cells.get((row, column))
    if cell is None:
        combination = (row, column) in matrix.excluded
        return Box(x, y, width, "excluded", SYMBOLS["excluded"].glyph, "excluded") if combination else None
    verdict = cell.verdict.value
    glyph = SYMBOLS["flaky" if cell.flaky else verdict].glyph
    reason = f": {cell.headline}" if cell.bad else ""
    return Box(x, y, width, verdict, glyph, fit(one_line(f"{cell.id} {verdict}{reason}"), 300), cell.newly_bad)


def _metrics(sheet: _Sheet, run: RunView) -> None:
    """Draws metrics with more than one run; the others are only counted."""
    every = run.series.series if run.series else []
    views = [view for view in every if len({point.run for point in view.points}) > 1]
    if not views:
        return
    sheet.write("metrics of recent runs", "head")
    for view in sorted(views, key=lambda view: not view.regression)[:_MOST_METRICS]:
        last = metric_or_open(view.points[-1].value, view.unit)
        drawn = Frame(metric_plot(view), SPARK_WIDTH, spark=True)
        sheet.sparks.append((sheet.y, fit(one_line(view.name), 68), last, drawn))
        sheet.y += SPARK_HEIGHT + 4
    if (more := len(every) - min(len(views), _MOST_METRICS)) > 0:
        sheet.write(f"… and {count(more, 'more metric')} in report.html", "note")
