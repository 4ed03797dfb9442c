"""A series as a chart: of braille dots or plain characters for a terminal, as numbers of an inline SVG for a page."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seatrial.report.chart import HEIGHT, WIDTH
from seatrial.report.series import SeriesView
from seatrial.report.series_words import figure

ROWS = 8
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille character: row by column
_BLOCKS = "▁▂▃▄▅▆▇█"
_SIGNS = {"slower": "↓", "faster": "↑", "false-alarm": "f", "regression": "r", "fixed": "x"}
_PAD = 4  # of the SVG's height, above and below


@dataclass(frozen=True)
class TerminalChart:
    rows: list[tuple[str, str]]  # label of the axis, drawing
    axis: str  # below: numbers of the changes
    events: str  # below that: alarms, and what people said
    legend: str  # of the signs in `events`


@dataclass(frozen=True)
class SvgChart:
    """Numbers in the SVG's own units."""

    line: str  # points of a polyline
    bounds: list[float]  # heights of the lower and the upper one
    changes: list[tuple[float, int]]  # place, number
    alarms: list[tuple[float, float, str]]  # place, height, verdict
    low: str
    high: str


class _Scale:
    """From values to heights: 0 at the lowest that is drawn, 1 at the highest."""

    def __init__(self, view: SeriesView) -> None:
        values = [point.value for point in view.points]
        levels = [level for level in bound_levels(view) if math.isfinite(level)]
        low, high = min(values), max(values)
        # A bound far away must not press the runs flat: it is drawn when it lies near them.
        span = (high - low) or abs(high) * 0.02 or 1.0
        near = [level for level in levels if low - 2 * span <= level <= high + 2 * span]
        self.low, self.high = min([low, *near]), max([high, *near])
        if self.low == self.high:
            self.low, self.high = self.low - span / 2, self.high + span / 2

    def __call__(self, value: float) -> float:
        # Halved first: the span of two floats may be more than a float can hold.
        return min(1.0, max(0.0, (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)))

    def shows(self, value: float) -> bool:
        return self.low <= value <= self.high


def bound_levels(view: SeriesView) -> list[float]:
    bound = view.bound
    return [level for level in (bound.lower, bound.upper) if level is not None] if bound else []


def terminal_chart(view: SeriesView, columns: int, ascii_only: bool, rows: int = ROWS) -> TerminalChart:
    """`columns` wide with the labels of its axis. Every run is in it, as the span of several where there is no room."""
    scale = _Scale(view)
    across, down = (1, 1) if ascii_only else (2, 4)
    top, bottom = figure(scale.high), figure(scale.low)
    levels = [level for level in bound_levels(view) if scale.shows(level)]
    label_of = {_row(scale(level), rows): figure(level) for level in levels}
    label_of.setdefault(0, top)
    label_of.setdefault(rows - 1, bottom)
    label = max(len(text) for text in label_of.values())
    width = max(8, columns - label - 2)
    places = _places(len(view.points), width * across)
    spans = _spans([scale(point.value) for point in view.points], places, rows * down)
    drawn = _ascii(spans, width, rows) if ascii_only else _braille(spans, width, rows)
    for level in levels:
        row = drawn[_row(scale(level), rows)]
        drawn[_row(scale(level), rows)] = [("." if ascii_only else "┄") if char == " " else char for char in row]
    axis, events = ["-" if ascii_only else "─"] * width, [" "] * width
    for number, moved in enumerate(view.changes, 1):
        axis[places[moved.index] // across] = str(number % 10)
    for place, point in zip(places, view.points, strict=True):
        if sign := _sign(point.verdict, point.mark):
            events[place // across] = sign
    rows_made = [(label_of.get(row, "").rjust(label), "".join(drawn[row])) for row in range(rows)]
    corner = "+" if ascii_only else "└"
    below = " " * label + corner + "".join(axis)
    return TerminalChart(rows_made, below, "".join(events).rstrip(), _legend(events))


def _sign(verdict: str, mark: str) -> str:
    return _SIGNS.get(mark or verdict, "" if verdict in ("passed", "xfail") else "!")


def _legend(events: Iterable[str]) -> str:
    used = set(events)
    return ", ".join(f"{sign} {word}" for word, sign in {**_SIGNS, "not good": "!"}.items() if sign in used)


def _places(number: int, width: int) -> list[int]:
    """Where each run stands: close together at the right when there are few, several in one place when many."""
    if number <= width:
        step = max(1, min(4, width // max(number, 1)))
        return [index * step for index in range(number)]
    return [index * width // number for index in range(number)]


def _row(height: float, rows: int) -> int:
    return min(rows - 1, int((1 - height) * rows))


def _spans(heights: list[float], places: list[int], steps: int) -> dict[int, tuple[int, int]]:
    """By place: the highest and the lowest step from the top that is drawn there."""
    spans: dict[int, tuple[int, int]] = {}
    for place, height in zip(places, heights, strict=True):
        step = _row(height, steps)
        high, low = spans.get(place, (step, step))
        spans[place] = (min(high, step), max(low, step))
    return spans


def _braille(spans: dict[int, tuple[int, int]], width: int, rows: int) -> list[list[str]]:
    cells = [[0] * width for _ in range(rows)]
    for place, (high, low) in spans.items():
        for step in range(high, low + 1):
            cells[step // 4][place // 2] |= _DOTS[step % 4][place % 2]
    return [[chr(0x2800 + bits) if bits else " " for bits in row] for row in cells]


def _ascii(spans: dict[int, tuple[int, int]], width: int, rows: int) -> list[list[str]]:
    cells = [[" "] * width for _ in range(rows)]
    for place, (high, low) in spans.items():
        for step in range(high, low + 1):
            cells[step][place] = "*" if step in (high, low) else "|"
    return cells


def sparkline(values: Sequence[float], columns: int, ascii_only: bool) -> str:
    """The last runs in one line."""
    shown = values[-columns:]
    if ascii_only or not shown:
        return ""
    low, high = min(shown), max(shown)
    span = high / 2 - low / 2
    if span <= 0:
        return _BLOCKS[3] * len(shown)
    return "".join(_BLOCKS[min(7, int((value / 2 - low / 2) / span * 8))] for value in shown)


def svg_chart(view: SeriesView) -> SvgChart:
    scale = _Scale(view)
    step = WIDTH / max(1, len(view.points) - 1)

    def height(value: float) -> float:
        return round(HEIGHT - _PAD - scale(value) * (HEIGHT - 2 * _PAD), 1)

    placed = [(round(index * step, 1), height(point.value)) for index, point in enumerate(view.points)]
    values = [point.value for point in view.points]
    drawn = placed if len(placed) > 1 else [*placed, (float(WIDTH), placed[0][1])]
    return SvgChart(
        line=" ".join(f"{x:g},{y:g}" for x, y in drawn),
        bounds=[height(level) for level in bound_levels(view) if scale.shows(level)],
        changes=[(placed[moved.index][0], number) for number, moved in enumerate(view.changes, 1)],
        alarms=[(*placed[index], point.verdict) for index, point in enumerate(view.points) if point.alarm],
        low=figure(min(values), view.unit),
        high=figure(max(values), view.unit),
    )
