"""Whole lines out of bytes that come in any pieces: what a log is read by while it is being written.

What a terminal would not show is not matched either: colours are taken out, and each state of a progress bar (what a
carriage return draws over) is a line of its own. A line is numbered as an editor would, by line feeds alone. Of a line
only the first LINE_BYTES are looked at, so memory is bounded whatever a job writes.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Dict, List, Optional, Tuple

LINE_BYTES = 64 << 10
TEXT_CHARACTERS = 500  # of a line that is shown
GRAIN = 1 << 10
BOM = b"\xef\xbb\xbf"
_ESCAPES = re.compile(rb"\x1b(?:\[[0-9;:?<=>]*[ -/]*[@-~]|\][^\x07\x1b\n\r]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])")
_PREFIX = re.compile(rb"\[(\d{1,6})\] ?")


class Block:
    """Whole lines, each ended by one `\\n` in `data` (the last may lack it), and which lines of the log they are."""

    def __init__(self, data: bytes, counted: bytes, first_line: int, numbers: Optional[List[int]] = None) -> None:
        self.data = data
        self._counted = counted  # as long as `data`, with only those line feeds that the log has
        self._first_line = first_line
        self._numbers = numbers
        count = counted.count
        # Line feeds before each GRAIN bytes: counted once, for all who ask for the number of a line.
        self._before = [0, *accumulate([count(b"\n", at, at + GRAIN) for at in range(0, len(counted), GRAIN)])]

    @property
    def line_feeds(self) -> int:
        return self._before[-1]

    def line_at(self, offset: int) -> int:
        """The number of the line in the log, from 1."""
        grain = offset // GRAIN
        found = self._before[grain] + self._counted.count(b"\n", grain * GRAIN, offset)
        return self._first_line + found if self._numbers is None else self._numbers[found]

    def bounds(self, offset: int) -> Tuple[int, int]:
        """Where the line around `offset` starts, and where it ends, without its line feed."""
        end = self.data.find(b"\n", offset)
        return self.data.rfind(b"\n", 0, offset) + 1, len(self.data) if end < 0 else end

    def by_host(self) -> Dict[int, "Block"]:
        """Lines of several hosts, apart, without the `[h] ` that says whose each is. A line without is host 0's."""
        lines: Dict[int, List[bytes]] = {}
        numbers: Dict[int, List[int]] = {}
        offset = 0
        for line in self.data.split(b"\n"):
            prefix = _PREFIX.match(line)
            if line:
                host = int(prefix.group(1)) if prefix else 0
                lines.setdefault(host, []).append(line[prefix.end() :] if prefix else line)
                numbers.setdefault(host, []).append(self.line_at(offset))
            offset += len(line) + 1
        return {
            host: Block(data, data, 0, [*numbers[host], numbers[host][-1]])
            for host in sorted(lines)
            for data in [b"\n".join(lines[host]) + b"\n"]
        }


class Lines:
    """Takes what comes, gives blocks of lines that have ended. `rest` is the one that has not."""

    def __init__(self) -> None:
        self.long_lines = 0
        self.lines = 0  # that have ended; with the rest, if there is one, all that there are
        self._rest = b""
        self._skipping = False  # the rest of a line of which enough has been kept
        self._first = True

    def feed(self, data: bytes) -> Optional[Block]:
        if self._skipping:
            ends = [at for at in (data.find(b"\n"), data.find(b"\r")) if at >= 0]
            if not ends:
                return None
            data = data[min(ends) :]
            self._skipping = False
        cut = data.rfind(b"\n") + 1
        cut = max(cut, data.rfind(b"\r", cut) + 1)
        whole = b"".join((self._rest, memoryview(data)[:cut])) if cut else b""
        self._rest = data[cut:] if cut else self._rest + data
        if len(self._rest) > LINE_BYTES:
            self._rest, self._skipping = self._rest[:LINE_BYTES], True
            self.long_lines += 1
        return self._block(whole) if cut else None

    def flush(self) -> Optional[Block]:
        """The last line may lack its end."""
        rest, self._rest, self._skipping = self._rest, b"", False
        if not rest:
            return None
        block = self._block(rest)
        self.lines += 1
        return block

    def unfinished(self) -> Optional[Block]:
        """The line that has not ended yet, to look at; it will come again."""
        if not self._rest:
            return None
        data = _plain(self._rest)
        return Block(data, data, self.lines + 1)

    def _block(self, data: bytes) -> Block:
        if self._first:
            self._first = False
            if data.startswith(BOM):
                data = data[len(BOM) :]
        if len(data) > LINE_BYTES:
            data = self._cut(data)
        plain = _plain(data)
        shown = plain.replace(b"\r", b"\n") if b"\r" in plain else plain
        block = Block(shown, plain, self.lines + 1)
        self.lines += block.line_feeds
        return block

    def _cut(self, data: bytes) -> bytes:
        """The same lines, none longer than LINE_BYTES."""
        kept: List[bytes] = []
        taken = position = 0
        while len(data) - position > LINE_BYTES:
            window = position + LINE_BYTES
            end = max(data.rfind(b"\n", position, window + 1), data.rfind(b"\r", position, window + 1)) + 1
            if end:
                position = end
                continue
            kept.append(data[taken:window])
            self.long_lines += 1
            ends = [at for at in (data.find(b"\n", window), data.find(b"\r", window)) if at >= 0]
            taken = position = min(ends) if ends else len(data)
        return b"".join([*kept, data[taken:]]) if kept else data


def line_text(block: Block, offset: int) -> str:
    """The line around `offset`, for a person."""
    start, end = block.bounds(offset)
    text = block.data[start : min(end, start + 4 * TEXT_CHARACTERS)].decode("utf-8", "replace")
    return text if len(text) <= TEXT_CHARACTERS else text[:TEXT_CHARACTERS] + "…"


def _plain(data: bytes) -> bytes:
    return _ESCAPES.sub(b"", data) if b"\x1b" in data else data
