"""Logs of several jobs on one output: whole lines, each with its cell before it."""

from typing import TextIO

from seatrial.report.text import one_line, strip_controls


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
