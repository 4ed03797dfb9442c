"""Terminal charts of a series: braille dots or ASCII characters, and a one-line sparkline."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from seatrial.report.view.series import Scale, SeriesView, bound_levels
from seatrial.report.view.words import metric_or_open

_ROWS = 8
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # braille dots by row and column
_BLOCKS = "▁▂▃▄▅▆▇█"
_SIGNS = {"slower": "↓", "faster": "↑", "false-alarm": "f", "regression": "r", "fixed": "x", "accepted": "a"}


@dataclass(frozen=True)
class TerminalChart:
    rows: list[tuple[str, str]]  # label of the axis, drawing
    axis: str  # x axis with the numbers of level changes
    events: str  # below the axis: alerts and marks
    legend: str  # for the signs in `events`


class _Ladder:
    """Maps values to steps from the top, `fine` steps per row.

    Each bound has its own row and the other rows are divided between the ranges, so a value within the bounds is
    never drawn outside them.
    """

    def __init__(self, scale: Scale, levels: dict[str, float], rows: int, fine: int) -> None:
        self._scale, self._levels, self._fine = scale, levels, fine
        edges = [scale.high, *levels.values(), scale.low]
        self._tops = [scale(edge) for edge in edges]
        inside = int("upper" in levels)  # index of the range between the bounds
        there = [number for number, (top, bottom) in enumerate(pairwise(edges)) if top > bottom or number == inside]
        self._rows = [int(number in there) for number in range(len(levels) + 1)]
        for _ in range(rows - len(levels) - len(there)):
            self._rows[max(there, key=lambda number: self._share(number) / self._rows[number])] += 1
        self._first = [sum(self._rows[:number]) + number for number in range(len(levels) + 1)]
        self.row_of = {side: self._first[number + 1] - 1 for number, side in enumerate(levels)}

    def _share(self, number: int) -> float:
        return self._tops[number] - self._tops[number + 1]

    def __call__(self, value: float) -> int:
        # A value equal to a bound is within it.
        over = [value > level if side == "upper" else value >= level for side, level in self._levels.items()]
        number = over.index(True) if True in over else len(over)
        steps = self._rows[number] * self._fine
        share = self._share(number)
        down = (self._tops[number] - self._scale(value)) / share if share > 0 else 0.0
        return self._first[number] * self._fine + max(0, min(steps - 1, int(down * steps)))


def terminal_chart(view: SeriesView, columns: int, ascii_only: bool) -> TerminalChart:
    """A chart `columns` wide, including the axis labels. Runs that share a column are drawn as a range."""
    scale = Scale(view)
    across, fine = (1, 1) if ascii_only else (2, 4)
    levels = {side: level for side, level in bound_levels(view).items() if scale.shows(level)}
    ladder = _Ladder(scale, levels, _ROWS, fine)
    label_of = {0: metric_or_open(scale.high), _ROWS - 1: metric_or_open(scale.low)}
    label_of |= {ladder.row_of[side]: metric_or_open(level) for side, level in levels.items()}
    label = max(len(text) for text in label_of.values())
    width = max(8, columns - label - 2)
    places = _places(len(view.points), width * across)
    spans: dict[int, tuple[int, int]] = {}  # x position -> highest and lowest step
    for place, step in zip(places, [ladder(point.value) for point in view.points], strict=True):
        high, low = spans.get(place, (step, step))
        spans[place] = (min(high, step), max(low, step))
    drawn = (_ascii if ascii_only else _braille)(spans, width, _ROWS)
    for row in ladder.row_of.values():
        drawn[row] = [("." if ascii_only else "┄") if char == " " else char for char in drawn[row]]
    axis, events = ["-" if ascii_only else "─"] * width, [" "] * width
    for number, moved in enumerate(view.changes, 1):
        axis[places[moved.index] // across] = str(number % 10)
    for place, point in zip(places, view.points, strict=True):
        if sign := _SIGNS.get(point.mark or point.verdict, "" if point.verdict in ("passed", "xfail") else "!"):
            events[place // across] = sign
    rows_made = [(label_of.get(row, "").rjust(label), "".join(drawn[row])) for row in range(_ROWS)]
    below = " " * label + ("+" if ascii_only else "└") + "".join(axis)
    legend = [f"{sign} {word}" for word, sign in {**_SIGNS, "did not pass": "!"}.items() if sign in events]
    return TerminalChart(rows_made, below, "".join(events).rstrip(), ", ".join(legend))


def _places(number: int, width: int) -> list[int]:
    """The x position of each run: spread out if there are few, shared if there are many."""
    if number <= width:
        step = max(1, min(4, width // max(number, 1)))
        return [index * step for index in range(number)]
    return [index * width // number for index in range(number)]


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
