"""Lines of styled text for a terminal, painted with or without colours or in ASCII."""

import os
from collections.abc import Iterable, Sequence
from typing import TextIO

from seatrial.job.units import count
from seatrial.report.view.grid import Matrix, Placed
from seatrial.report.view.words import SYMBOLS, fit, one_line, pad, strip_controls, to_ascii, width

Line = list[tuple[str, str]]  # (text, style); a style is words of _CODES

_COLOURS = ("red", "green", "yellow", "blue", "magenta", "cyan")
_CODES = {"bold": "1", "dim": "2"} | {name: str(code) for code, name in enumerate(_COLOURS, 31)}


def paint(lines: Iterable[Line], colour: bool = False, ascii_only: bool = False) -> str:
    made = []
    for line in lines:
        painted = ""
        for text, style in line:
            shown = to_ascii(text) if ascii_only else text
            codes = ";".join(_CODES[word] for word in style.split())
            painted += f"\x1b[{codes}m{shown}\x1b[0m" if colour and codes and shown.strip() else shown
        made.append(painted.rstrip(" ") + "\n")
    return "".join(made)


def wants_colour(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


def is_ascii(stream: TextIO) -> bool:
    """Whether the stream cannot encode our glyphs."""
    try:
        "✓≈◔".encode(stream.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return True
    return False


def glyph(state: str) -> tuple[str, str]:
    symbol = SYMBOLS[state]
    return symbol.glyph, symbol.colour or "dim"


def more_lines(number: int, one: str = "", many: str = "") -> list[Line]:
    """A line with the number of omitted items; none if nothing is omitted."""
    text = count(number, f"more {one}", f"more {many}" if many else "") if one else f"{number:,} more"
    return [[(f"  … and {text}", "dim")]] if number > 0 else []


def broken(line: Line, columns: int) -> list[Line]:
    """A line of counts, wrapped between them if it is too long."""
    lines: list[Line] = [[]]
    used = 0
    for text, style in line:
        if used + width(text) > columns:
            lines.append([("  ", "")])
            used = 2
        if text.strip() or used > 2:
            lines[-1].append((text, style))
            used += width(text)
    return lines


def section(title: str, items: Iterable[list[Line]], most: int, *left: str, style: str = "bold") -> list[Line]:
    """A title, the lines of at most `most` items, the number of omitted ones, a blank line; empty without items."""
    found = list(items)
    shown = [line for lines in found[:most] for line in lines]
    return [[(title, style)], *shown, *more_lines(len(found) - most, *left), []] if found else []


def matrix_lines(
    matrix: Matrix[Placed], cells: dict[str, tuple[str, str]], columns: int, rows: Sequence[int]
) -> list[Line]:
    """A matrix, `columns` wide. `cells` maps ids to a key of SYMBOLS and a text that is shown if there is room.

    Only `rows` are drawn. Columns that do not fit are continued in blocks below.
    """
    label = min(max([width(matrix.rows[row]) for row in rows] + [width(matrix.row_title)]), max(columns // 3, 8))
    each, wide = _column_width(matrix, cells, columns - label)
    per_block = max(1, (columns - label) // (each + _gutter(each)))
    lines: list[Line] = []
    for start in range(0, len(matrix.columns), per_block):
        block = range(start, min(start + per_block, len(matrix.columns)))
        lines += _headings(matrix, block, label, each)
        lines += [_row(matrix, row, block, cells, label, each, wide) for row in rows]
    return lines


def _column_width(matrix: Matrix[Placed], cells: dict[str, tuple[str, str]], room: int) -> tuple[int, bool]:
    """The column width, and whether there is room for the text next to the glyph."""
    title = max(width(column) for column in matrix.columns)
    texts = [_content(cells[cell.id], True) for cell in matrix.cells.values()]
    full = max([sum(width(text) for text, _ in line) for line in texts] + [1])
    titles = [min(title, most) for most in (24, 10, 6, 4, 3)]
    for each in (max(full, titles[0]), max(full, titles[1]), *titles[1:], 2, 1):
        if (each + _gutter(each)) * len(matrix.columns) <= room:
            return each, each >= full
    return max(titles[2], 2), False


def _gutter(each: int) -> int:
    return 2 if each > 3 else 1


def _headings(matrix: Matrix[Placed], block: range, label: int, each: int) -> list[Line]:
    """Column titles, wrapped if they are too long."""
    titles = []
    for text in matrix.columns[block.start : block.stop]:
        parts = [text[start : start + each] for start in range(0, len(text), each)] or [""]
        titles.append([fit(part, each) for part in parts[:6]])
    depth = max(map(len, titles))
    lines: list[Line] = []
    for level in range(depth):
        line: Line = [(pad(fit(matrix.row_title, label) if level == depth - 1 else "", label), "dim")]
        for parts in titles:
            part = parts[level - depth] if depth - level <= len(parts) else ""
            line += [(" " * _gutter(each), ""), (pad(part, each), "bold")]
        lines.append(line)
    return lines


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
    mark, colour = glyph(word)
    beside_it = [(f" {beside}", colour if beside.startswith(word) else "dim")] if wide and beside else []
    return [(mark, colour), *beside_it]


# Logs of several jobs on one stream.


class LogPrinter:
    """Writes job output: unchanged without a name, otherwise in whole lines prefixed with the name.

    On a terminal, escape sequences and control characters are removed.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._strip = out.isatty()
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
        """Writes the last lines that have no line break."""
        for name, partial in self._partial.items():
            if partial:
                self.write(name, b"\n")

    def _put(self, data: bytes) -> None:
        if self._strip:
            data = strip_controls(data.decode("utf-8", "replace")).encode("utf-8", "replace")
        self._out.flush()
        self._out.buffer.write(data)
        self._out.flush()
