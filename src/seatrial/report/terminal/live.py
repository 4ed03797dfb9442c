"""Progress of a run: a live matrix on a terminal, plain lines elsewhere."""

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TextIO

from seatrial.job import CELLS_WORST_FIRST, Excluded, normalised
from seatrial.job.units import count
from seatrial.report.terminal.lines import Line, broken, glyph, is_ascii, matrix_lines, more_lines
from seatrial.report.terminal.plain import Plain
from seatrial.report.view.grid import AxisLabels, Placed, matrices
from seatrial.report.view.live import VERDICT_WORDS, Tally
from seatrial.report.view.words import duration_text, fit, one_line, rough_duration_text, to_ascii

if TYPE_CHECKING:
    from rich.text import Text

REDRAWS_PER_SECOND = 2
MOST_RUNNING = 6  # running cells listed below the matrix
MOST_FAILED = 5  # reasons of failures listed below the matrix
_normalised = lru_cache(maxsize=4096)(normalised)


class Watching(Protocol):
    """Receives the changes of each cell. `state` is starting, waiting, running, retrying, confirming, or a verdict.

    `progress` is the current step, the reason for waiting, or the reason for the verdict. An empty `cell` means the
    whole run; after `left` the process exits immediately. `at_s` is the time of the change by `time.monotonic`, if not
    now.
    """

    def update(self, cell: str, state: str, progress: str = "", at_s: float | None = None) -> None: ...


@contextlib.contextmanager
def live_view(
    cells: Sequence[Placed],
    excluded: Iterable[Excluded] = (),
    expected: Mapping[str, float] | None = None,
    labels: AxisLabels | None = None,
) -> Iterator[Watching]:
    """Shows a run on standard output until the block ends. Output errors do not affect the run.

    `expected` maps cell ids to earlier durations in seconds."""
    if sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb"):
        board = Board(cells, excluded, expected, labels)
        with board.shown(sys.stdout):
            yield board
    else:
        plain = Plain(cells, sys.stdout, expected)
        with plain.shown():
            yield plain


class Board:
    """Live matrix of a run. `update` only records changes; a timer redraws at most twice a second."""

    def __init__(
        self,
        cells: Sequence[Placed],
        excluded: Iterable[Excluded] = (),
        expected: Mapping[str, float] | None = None,
        labels: AxisLabels | None = None,
    ) -> None:
        self._matrices = matrices(cells, excluded, labels)
        self._where = {
            cell.id: (number, row)
            for number, matrix in enumerate(self._matrices)
            for (row, _), cell in matrix.cells.items()
        }
        self._tally = Tally((cell.id for cell in cells), expected)
        self._changed: dict[tuple[int, int], None] = {}  # rows, latest change last
        self._began_s = time.monotonic()
        self._note = ""
        self._lock = threading.Lock()
        self._take_away: Callable[[str], None] | None = None
        self.drawn = 0

    def update(self, cell: str, state: str, progress: str = "", at_s: float | None = None) -> None:
        with self._lock:
            if cell not in self._tally.state:
                self._note = one_line(f"{state}: {progress}")
                if state == "left" and self._take_away is not None:
                    self._take_away(self._note)
                return
            at_s = time.monotonic() if at_s is None else at_s
            self._began_s = min(self._began_s, at_s)
            self._tally.take(cell, state, progress, at_s)
            row = self._where[cell]
            self._changed.pop(row, None)
            self._changed[row] = None

    def lines(self, columns: int, height: int) -> list[Line]:
        """The lines that fit: rows with running cells first, then the latest changed ones."""
        with self._lock:
            footer = self._footer(columns)
            failed = self._failed_lines(columns, max(0, min(MOST_FAILED, height // 5)))
            running = self._running_lines(columns, max(0, min(MOST_RUNNING, height // 4)))
            room = max(0, height - len(footer) - len(running) - len(failed) - 2)  # and the number of hidden rows
            active = {self._where[cell]: None for cell in self._tally.running}
            every = ((number, row) for number, matrix in enumerate(self._matrices) for row in range(len(matrix.rows)))
            ranked = list({**active, **dict.fromkeys(reversed(self._changed)), **dict.fromkeys(every)})
            most = min(len(ranked), room)
            body = self._body(ranked[:most], columns)
            while len(body) > room and most > 0:
                most = max(0, most - max(1, min(len(body) - room, most // 2)))
                body = self._body(ranked[:most], columns)
            if hidden := len(ranked) - most:
                body.append([(f"… {count(hidden, 'more row')}", "dim")])
            return [*body, *failed, *running, *footer][-height:]

    def _body(self, rows: list[tuple[int, int]], columns: int) -> list[Line]:
        states = self._states()
        lines: list[Line] = []
        for number, matrix in enumerate(self._matrices):
            mine = sorted(row for place, row in rows if place == number)
            if mine:
                lines.append([(one_line(matrix.trial), "bold"), (f"  {one_line(matrix.fixed)}", "dim")])
                lines += matrix_lines(matrix, states, columns, mine)
        return lines

    def _states(self) -> dict[str, tuple[str, str]]:
        """The state of each cell and the text next to its glyph."""
        now_s = time.monotonic()
        states = {}
        for cell, state in self._tally.state.items():
            running = self._tally.running.get(cell)
            if running is not None:
                states[cell] = ("running", f"{now_s - running.began_s:.0f} s")
            else:
                beside = duration_text(self._tally.ended.get(cell)) if state == "passed" else state
                states[cell] = (state, "" if state == "waiting" else beside)
        return states

    def _failed_lines(self, columns: int, most: int) -> list[Line]:
        """The failures by their reasons, each with its latest cell; the largest group first."""
        groups: dict[tuple[str, str], list[str]] = {}
        for cell, why in self._tally.failed.items():
            state = self._tally.state[cell]
            groups.setdefault(("retrying" if state not in VERDICT_WORDS else state, _normalised(why)), []).append(cell)
        largest = sorted(groups.items(), key=lambda group: -len(group[1]))
        lines: list[Line] = []
        for (state, _), cells in largest[:most]:
            mark, colour = glyph(state)
            number, example = (f"{len(cells)} × ", "e.g. ") if len(cells) > 1 else ("", "")
            text = f"{number}{self._tally.failed[cells[-1]]}  {example}{one_line(cells[-1])}"
            lines.append([(f"{mark} ", colour), (fit(text, columns - 2), "")])
        return [*lines, *(more_lines(len(largest) - most, "reason") if most else [])]

    def _running_lines(self, columns: int, most: int) -> list[Line]:
        lines: list[Line] = []
        for cell, running in list(self._tally.running.items())[:most]:
            text = f"{duration_text(round(time.monotonic() - running.began_s))}  {running.doing}  {one_line(cell)}"
            lines.append([(f"{glyph('running')[0]} ", "cyan"), (fit(text, columns - 2), "dim")])
        return lines

    def _footer(self, columns: int) -> list[Line]:
        states = Counter(self._tally.state.values())
        counted = {verdict.value: states[verdict.value] for verdict in CELLS_WORST_FIRST}
        done = sum(counted.values())
        now_s = time.monotonic()
        left_s = self._tally.left_s(now_s) if done < len(self._tally.state) else None
        left = f"  about {rough_duration_text(left_s)} left" if left_s is not None else ""
        took = duration_text(round(now_s - self._began_s))
        line: Line = [(f"{done}/{len(self._tally.state)} done", "bold"), (f"  {took}{left}", "dim")]
        counted |= {"retrying": len(self._tally.again), "running": len(self._tally.running)}
        for state, number in counted.items():
            mark, colour = glyph(state)
            text = "failed, retrying" if state == "retrying" else state
            if number:
                line += [("  ", ""), (f"{mark} {number} {text}", colour)]
        return [*broken(line, columns), *([[(fit(self._note, columns), "bold yellow")]] if self._note else [])]

    @contextlib.contextmanager
    def shown(self, out: TextIO) -> Iterator[None]:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=out, highlight=False)
        ascii_only = is_ascii(out)

        def draw() -> "Text":
            self.drawn += 1
            return _text(self.lines(console.size.width, console.size.height - 1), ascii_only)

        live = Live(
            console=console,
            get_renderable=draw,
            refresh_per_second=REDRAWS_PER_SECOND,
            transient=True,
            vertical_overflow="crop",
        )

        def take_away(last: str) -> None:
            """Restores the terminal and prints a last line: the process exits without further cleanup."""
            console.show_cursor()
            out.write(f"\n{to_ascii(last) if ascii_only else last}\n")
            out.flush()

        self._take_away = take_away
        with live:
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
