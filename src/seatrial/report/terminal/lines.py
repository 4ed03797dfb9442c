"""Lines of styled text for a terminal: made once, painted with colours, without, or in plain ASCII."""

import os
from collections.abc import Iterable
from typing import TextIO

from seatrial.job.units import count
from seatrial.report.view.grid import Matrix, Placed
from seatrial.report.view.words import SYMBOLS, fit, one_line, pad, strip_controls, to_ascii, width

Line = list[tuple[str, str]]  # (text, style); a style is words of _CODES

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


def paint(lines: Iterable[Line], colour: bool = False, ascii_only: bool = False) -> str:
    return "".join(_paint_line(line, colour, ascii_only) + "\n" for line in lines)


def _paint_line(line: Line, colour: bool, ascii_only: bool) -> str:
    painted = []
    for text, style in line:
        shown = to_ascii(text) if ascii_only else text
        codes = ";".join(_CODES[word] for word in style.split())
        painted.append(f"\x1b[{codes}m{shown}\x1b[0m" if colour and codes and shown.strip() else shown)
    return "".join(painted).rstrip(" ")


def wants_colour(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


def is_ascii(stream: TextIO) -> bool:
    """Whether it cannot show our glyphs."""
    try:
        "✓≈◔".encode(stream.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return True
    return False


def glyph(state: str) -> tuple[str, str]:
    symbol = SYMBOLS[state]
    return symbol.glyph, symbol.colour or "dim"


def more_lines(number: int, one: str = "", many: str = "") -> list[Line]:
    """How many of something are left out; none where none are."""
    text = count(number, f"more {one}", f"more {many}" if many else "") if one else f"{number:,} more"
    return [[(f"  … and {text}", "dim")]] if number > 0 else []


def matrix_lines(
    matrix: Matrix[Placed], cells: dict[str, tuple[str, str]], columns: int, rows: Iterable[int] | None = None
) -> list[Line]:
    """A matrix of `cells` (id -> (key of SYMBOLS, text to show beside its glyph if there is room)), `columns` wide.

    `rows` picks those to draw, in their order. Columns that do not fit side by side come in blocks below each other.
    """
    shown = list(range(len(matrix.rows)) if rows is None else rows)
    label = min(max([width(matrix.rows[row]) for row in shown] + [width(matrix.row_title)]), max(columns // 3, 8))
    each, wide = _column_width(matrix, cells, columns - label)
    per_block = max(1, (columns - label) // (each + _gutter(each)))
    lines: list[Line] = []
    for start in range(0, len(matrix.columns), per_block):
        block = range(start, min(start + per_block, len(matrix.columns)))
        lines += _headings(matrix, block, label, each)
        for row in shown:
            lines.append(_row(matrix, row, block, cells, label, each, wide))
    return lines


def _column_width(matrix: Matrix[Placed], cells: dict[str, tuple[str, str]], room: int) -> tuple[int, bool]:
    """How wide each column is, and whether there is room for more than a glyph in it."""
    title = max(width(column) for column in matrix.columns)
    texts = [_content(cells[cell.id], True) for cell in matrix.cells.values()]
    full = max([sum(width(text) for text, _ in line) for line in texts] + [1])
    tries = [
        max(full, min(title, 24)),
        max(full, min(title, 10)),
        min(title, 10),
        min(title, 6),
        min(title, 4),
        min(title, 3),
        2,
        1,
    ]
    for each in tries:
        if (each + _gutter(each)) * len(matrix.columns) <= room:
            return each, each >= full
    return max(min(title, 6), 2), False


def _gutter(each: int) -> int:
    return 2 if each > 3 else 1


def _headings(matrix: Matrix[Placed], block: range, label: int, each: int) -> list[Line]:
    """Column titles, broken over lines rather than cut."""
    titles = {column: _wrap(matrix.columns[column], each) for column in block}
    depth = max(len(parts) for parts in titles.values())
    lines: list[Line] = []
    for level in range(depth):
        line: Line = [(pad(fit(matrix.row_title, label) if level == depth - 1 else "", label), "dim")]
        for column in block:
            parts = [""] * (depth - len(titles[column])) + titles[column]
            line += [(" " * _gutter(each), ""), (pad(parts[level], each), "bold")]
        lines.append(line)
    return lines


def _wrap(text: str, columns: int) -> list[str]:
    parts = [text[start : start + columns] for start in range(0, len(text), columns)] or [""]
    return [fit(part, columns) for part in parts[:6]]


def _row(
    matrix: Matrix[Placed], row: int, block: range, cells: dict[str, tuple[str, str]], label: int, each: int, wide: bool
) -> Line:
    line: Line = [(pad(fit(matrix.rows[row], label), label), "")]
    for column in block:
        cell = matrix.cells.get((row, column))
        if cell is not None:
            content = _content(cells[cell.id], wide)
        else:
            content = [glyph("excluded")] if (row, column) in matrix.excluded else [(" ", "")]
        line.append((" " * _gutter(each), ""))
        room = each
        for text, style in content:
            cut = fit(text, room)
            line.append((cut, style))
            room -= width(cut)
        line.append((" " * room, ""))
    return line


def _content(state: tuple[str, str], wide: bool) -> Line:
    word, beside = state
    first: Line = [glyph(word)]
    if wide and beside:
        first.append((f" {beside}", glyph(word)[1] if beside.startswith(word) else "dim"))
    return first


# Logs of several jobs on one output: whole lines, each with its cell before it.


class LogPrinter:
    """Writes what comes: of what has a name, whole lines with the name before each; else just as it comes.

    On a terminal, what a job said is shown and not obeyed: escape sequences and control characters are taken out.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._acts = out.isatty()  # upon what is written to it
        self._partial: dict[str, bytes] = {}

    def write(self, name: str, data: bytes) -> None:
        if not name:
            self._put(data)
            return
        *whole, self._partial[name] = (self._partial.get(name, b"") + data).split(b"\n")
        if whole:
            before = f"{one_line(name)} | ".encode("utf-8", "replace")
            self._put(b"".join(b"%b%b\n" % (before, line) for line in whole))

    def close(self) -> None:
        """With lines that were never ended."""
        for name, partial in self._partial.items():
            if partial:
                self.write(name, b"\n")

    def _put(self, data: bytes) -> None:
        if self._acts:
            data = strip_controls(data.decode("utf-8", "replace")).encode("utf-8", "replace")
        self._out.flush()
        self._out.buffer.write(data)
        self._out.flush()
