"""What a person sees while a run goes on: a live matrix on a terminal, a line for each finished cell elsewhere."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TextIO

from seatrial.job import CELLS_WORST_FIRST, Hole, Verdict
from seatrial.report.matrix import Placed, matrices
from seatrial.report.symbols import SYMBOLS, to_ascii
from seatrial.report.terminal.lines import Line, glyph, is_ascii, matrix_lines, paint, wants_colour
from seatrial.report.text import count, duration_text, fit, one_line

if TYPE_CHECKING:
    from rich.text import Text

REDRAWS_PER_SECOND = 2
MOST_RUNNING = 6  # cells whose progress is shown below the matrix
_VERDICTS = frozenset(verdict.value for verdict in Verdict)
AGAIN = ("retrying", "confirming")
MOST_REASONS = 20  # for waiting that get a line each


class Watching(Protocol):
    """Takes what the engine reports of each cell: `state` is starting, waiting, running, retrying, confirming or, at
    its end, a verdict.

    `progress` is the step that it is at, what it waits for, or the reason of its verdict. A change without a cell is
    for everybody.
    """

    def update(self, cell: str, state: str, progress: str = "") -> None: ...


@contextlib.contextmanager
def watching(cells: Sequence[Placed], holes: Iterable[Hole] = (), stream: TextIO | None = None) -> Iterator[Watching]:
    """Show a run on `stream` (standard output) until the block ends. Nothing that fails in showing reaches the run."""
    out = stream or sys.stdout
    if out.isatty() and os.environ.get("TERM", "") not in ("", "dumb"):
        board = Board(cells, holes)
        with board.shown(out):
            yield board
    else:
        yield Plain(len(cells), out)


class Clocks:
    """When each cell that has not ended was started. It counts anew when it runs: what came before is not its own."""

    def __init__(self) -> None:
        self._started_s: dict[str, float] = {}
        self._running: set[str] = set()

    def take(self, cell: str, state: str) -> float | None:
        """Note a change; the seconds that the cell has had so far, None if it never started."""
        now_s = time.monotonic()
        if state == "starting" or (state == "running" and cell not in self._running):
            self._started_s[cell] = now_s
        if state == "running":
            self._running.add(cell)
        began_s = self._started_s.get(cell)
        if state in _VERDICTS or state in AGAIN:
            self._started_s.pop(cell, None)
            self._running.discard(cell)
        return None if began_s is None else now_s - began_s


class Plain:
    """A line for each finished cell, and for each new reason why cells wait.

    Imports nothing; stops writing, and nothing else, when nobody reads any more."""

    def __init__(self, cells: int, out: TextIO) -> None:
        self._cells = cells
        self._done = 0
        self._out: TextIO | None = out
        self._colour = wants_colour(out)
        self._ascii = is_ascii(out)
        self._clocks = Clocks()
        self._waiting_shown: set[str] = set()

    def update(self, cell: str, state: str, progress: str = "") -> None:
        took_s = self._clocks.take(cell, state)
        why = one_line(progress)
        if not cell:
            self._write([(f"{state}: {why}" if why else state, "bold yellow")])
        elif state in _VERDICTS:
            self._done += 1
            self._write(self._finished(cell, state, took_s, why))
        elif state in AGAIN or (state == "waiting" and self._new_reason(why)):
            why = why.removeprefix(f"{state}: ")
            self._write([(self._place(), "dim"), (state, "yellow"), (f" {one_line(cell)}", ""), (f": {why}", "dim")])

    def _new_reason(self, why: str) -> bool:
        """Thousands may wait for the same, in words that differ by their numbers alone: only the first is reported."""
        reason = "".join(character for character in why if not character.isdigit())
        if reason in self._waiting_shown or len(self._waiting_shown) >= MOST_REASONS:
            return False
        self._waiting_shown.add(reason)
        return True

    def _finished(self, cell: str, state: str, took_s: float | None, why: str) -> Line:
        line: Line = [(self._place(), "dim"), (state, SYMBOLS[state].colour), (f" {one_line(cell)}", "")]
        if took_s is not None:
            line.append((f" {duration_text(took_s)}", "dim"))
        if why and state != "passed":
            line.append((f": {why}", ""))
        return line

    def _place(self) -> str:
        total = str(self._cells)
        return f"[{self._done:>{len(total)}}/{total}] "

    def _write(self, line: Line) -> None:
        if self._out is None:
            return
        try:
            self._out.write(paint([line], self._colour, self._ascii))
            self._out.flush()
        except (OSError, ValueError):  # a closed pipe, a full disk, a closed file
            self._out = None


class Board:
    """The matrix of a run that goes on. `update` only notes; drawing is done by a clock of its own, twice a second."""

    def __init__(self, cells: Sequence[Placed], holes: Iterable[Hole] = ()) -> None:
        self._matrices = matrices(cells, holes)
        self._where = {
            cell: (number, row)
            for number, matrix in enumerate(self._matrices)
            for (row, _), cell in matrix.cells.items()
        }
        self._state: dict[str, tuple[str, str]] = {cell.id: ("waiting", "") for cell in cells}
        self._running: dict[str, tuple[float, str]] = {}  # cell -> when it started, what it does
        self._waits: set[str] = set()  # of those, the ones that have not begun
        self._changed: dict[tuple[int, int], None] = {}  # rows, the last changed at the end
        self._clocks = Clocks()
        self._began_s = time.monotonic()
        self._note = ""
        self._lock = threading.Lock()
        self.drawn = 0

    def update(self, cell: str, state: str, progress: str = "") -> None:
        with self._lock:
            took_s = self._clocks.take(cell, state)
            if cell not in self._state:
                self._note = one_line(f"{state}: {progress}")
            elif state in _VERDICTS:
                self._running.pop(cell, None)
                self._state[cell] = (state, duration_text(took_s) if state == "passed" else state)
                self._touch(cell)
            elif state in AGAIN:
                self._running.pop(cell, None)
                self._state[cell] = (state, state)
                self._touch(cell)
            else:
                _, doing = self._running.get(cell, (0.0, ""))
                if state == "running" and cell in self._waits:
                    doing = ""
                (self._waits.add if state == "waiting" else self._waits.discard)(cell)
                self._running[cell] = (time.monotonic() - (took_s or 0.0), one_line(progress or doing) or state)
                self._state[cell] = ("running", "")
                self._touch(cell)

    def _touch(self, cell: str) -> None:
        row = self._where[cell]
        self._changed.pop(row, None)
        self._changed[row] = None

    def lines(self, columns: int, height: int) -> list[Line]:
        """What fits into so many columns and lines: rows with running cells first, then those that changed last."""
        with self._lock:
            footer = self._footer(columns)
            running = self._running_lines(columns, max(0, min(MOST_RUNNING, height // 4)))
            room = max(0, height - len(footer) - len(running) - 1)
            ranked = self._ranked()
            most = min(len(ranked), room)
            body = self._body(ranked[:most], columns)
            while len(body) > room and most > 0:
                most = max(0, most - max(1, min(len(body) - room, most // 2)))
                body = self._body(ranked[:most], columns)
            hidden = len(ranked) - most
            if hidden:
                footer[0].insert(1, (f" ({count(hidden, 'row')} not shown)", "dim"))
            return [*body, *running, *footer]

    def _ranked(self) -> list[tuple[int, int]]:
        active = {self._where[cell]: None for cell in self._running}
        every = ((number, row) for number, matrix in enumerate(self._matrices) for row in range(len(matrix.rows)))
        return list({**active, **dict.fromkeys(reversed(self._changed)), **dict.fromkeys(every)})

    def _body(self, rows: list[tuple[int, int]], columns: int) -> list[Line]:
        now_s = time.monotonic()
        states = {**self._state}
        for cell, (began_s, _) in self._running.items():
            states[cell] = ("running", f"{now_s - began_s:.0f} s")
        lines: list[Line] = []
        for number, matrix in enumerate(self._matrices):
            mine = sorted(row for place, row in rows if place == number)
            if mine:
                lines.append([(one_line(matrix.trial), "bold"), (f"  {one_line(matrix.fixed)}", "dim")])
                lines += matrix_lines(matrix, states, columns, mine)
        return lines

    def _running_lines(self, columns: int, most: int) -> list[Line]:
        lines: list[Line] = []
        for cell, (began_s, doing) in list(self._running.items())[:most]:
            parts = (duration_text(round(time.monotonic() - began_s)), doing, one_line(cell))
            text = "  ".join(part for part in parts if part)
            lines.append([(f"{glyph('running')[0]} ", "cyan"), (fit(text, columns - 2), "dim")])
        return lines

    def _footer(self, columns: int) -> list[Line]:
        counted = dict.fromkeys((verdict.value for verdict in CELLS_WORST_FIRST), 0)
        for state, _ in self._state.values():
            if state in counted:
                counted[state] += 1
        done = sum(counted.values())
        took = duration_text(round(time.monotonic() - self._began_s))
        line: Line = [(f"{done}/{len(self._state)} done", "bold"), (f"  {took}", "dim")]
        for state, number in {**counted, "running": len(self._running)}.items():
            mark, colour = glyph(state)
            if number:
                line += [("  ", ""), (f"{mark} {number} {state}", colour)]
        return [line, [(fit(self._note, columns), "bold yellow")]] if self._note else [line]

    @contextlib.contextmanager
    def shown(self, out: TextIO) -> Iterator[None]:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=out, highlight=False)
        ascii_only = is_ascii(out)

        def draw() -> "Text":
            self.drawn += 1
            return _text(self.lines(console.size.width, console.size.height - 1), ascii_only)

        with Live(
            console=console,
            get_renderable=draw,
            refresh_per_second=REDRAWS_PER_SECOND,
            transient=True,
            vertical_overflow="crop",
        ):
            yield


def _text(lines: list[Line], ascii_only: bool) -> "Text":
    from rich.text import Text

    text = Text(no_wrap=True, overflow="crop", end="")
    for number, line in enumerate(lines):
        if number:
            text.append("\n")
        for part, style in line:
            text.append(to_ascii(part) if ascii_only else part, style or None)
    return text
