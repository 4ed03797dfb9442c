"""Progress output without a terminal: one line per finished cell, and a status line after a minute of silence."""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

from seatrial.report.terminal.lines import Line, is_ascii, paint, wants_colour
from seatrial.report.view.grid import Placed
from seatrial.report.view.live import AGAIN, VERDICT_WORDS, Tally
from seatrial.report.view.words import SYMBOLS, duration_text, one_line, rough_duration_text

_SILENCE_S = 60.0  # without output until the next status line
MOST_REASONS = 20  # reasons for waiting that are printed
_MOST_NAMED = 3  # running cells named in a status line


class Plain:
    """Prints a line for each finished cell and each new reason for waiting, and a status line after `silence_s`.

    If writing fails, for example because the pipe is closed, it stops printing; the run continues."""

    def __init__(
        self,
        cells: Sequence[Placed],
        out: TextIO,
        expected: Mapping[str, float] | None = None,
        silence_s: float = _SILENCE_S,
    ) -> None:
        self._tally = Tally((cell.id for cell in cells), expected)
        self._out: TextIO | None = out
        self._colour = wants_colour(out)
        self._ascii = is_ascii(out)
        self._silence_s = silence_s
        self._began_s = self._written_s = time.monotonic()
        self._waiting_shown: set[str] = set()
        self._lock = threading.Lock()

    def update(self, cell: str, state: str, progress: str = "", at_s: float | None = None) -> None:
        why = one_line(progress)
        with self._lock:
            if not cell:
                self._write([(f"{state}: {why}" if why else state, "bold yellow")])
                return
            again = cell in self._tally.ended
            self._tally.take(cell, state, why, time.monotonic() if at_s is None else at_s)
            if state in VERDICT_WORDS and not again:
                took_s = self._tally.ended.get(cell)
                took = f" {duration_text(took_s)}" if took_s is not None else ""
                reason = f": {why}" if why and state != "passed" else ""
                head: Line = [(self._place(), "dim"), (state, SYMBOLS[state].colour), (f" {one_line(cell)}", "")]
                self._write([*head, (took, "dim"), (reason, "")])
            elif state in AGAIN or (state == "waiting" and self._new_reason(why)):
                why = why.removeprefix(f"{state}: ")
                head = [(self._place(), "dim"), (state, "yellow"), (f" {one_line(cell)}", "")]
                self._write([*head, (f": {why}", "dim")])

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Prints status lines until the block ends."""
        over = threading.Event()
        thread = threading.Thread(target=self._break_silence, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _break_silence(self, over: threading.Event) -> None:
        while not over.wait(max(0.05, self._written_s + self._silence_s - time.monotonic())):
            with self._lock:
                if time.monotonic() >= self._written_s + self._silence_s:
                    self._write(self._how_far())

    def _how_far(self) -> Line:
        now_s = time.monotonic()
        running = self._tally.running
        text = f"{duration_text(round(now_s - self._began_s))}, {len(running)} running"
        again = len(self._tally.again)
        for number, word in ((len(self._tally.failed) - again, "failed"), (again, "to retry")):
            text += f", {number} {word}" if number else ""
        left_s = self._tally.left_s(now_s)
        text += f", about {rough_duration_text(left_s)} left" if left_s is not None else ""
        named = [
            f"{one_line(cell)} {one.doing} ({duration_text(round(now_s - one.began_s))})"
            for cell, one in list(running.items())[:_MOST_NAMED]
        ]
        more = f" and {len(running) - _MOST_NAMED} more" if len(running) > _MOST_NAMED else ""
        return [(self._place(), "dim"), (text, ""), (f": {'; '.join(named)}{more}" if named else "", "dim")]

    def _new_reason(self, why: str) -> bool:
        """Whether the reason is new, apart from its numbers: thousands of cells may wait for the same reason."""
        reason = "".join(character for character in why if not character.isdigit())
        if reason in self._waiting_shown or len(self._waiting_shown) >= MOST_REASONS:
            return False
        self._waiting_shown.add(reason)
        return True

    def _place(self) -> str:
        total = str(len(self._tally.state))
        return f"[{len(self._tally.ended):>{len(total)}}/{total}] "

    def _write(self, line: Line) -> None:
        self._written_s = time.monotonic()
        if self._out is None:
            return
        try:
            self._out.write(paint([line], self._colour, self._ascii))
            self._out.flush()
        except (OSError, ValueError):  # a closed pipe, a full disk, a closed file
            self._out = None
