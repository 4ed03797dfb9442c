"""Splits a byte stream into complete lines, so that a log can be read while it is written.

Patterns match what a terminal shows: colours are removed, and each state of a progress bar (ended by a carriage return)
is a line. Line numbers are those of an editor, which counts only line feeds. A line of more than LINE_BYTES is split
into windows, so that memory is bounded.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Dict, Iterator, List, Optional, Set, Tuple, Union

from ..masking.escapes import unfinished
from ..masking.mask import Mask

# Lines that are too long to keep in memory are searched in overlapping windows. A window has its own part, and context
# before it (for lookbehind) and after it (for matches that start in its own part). A match longer than OVERLAP_BYTES is
# found for certain only if it starts and ends in one window.


WINDOW_BYTES = 256 << 10
OVERLAP_BYTES = 128 << 10
BEFORE_BYTES = 256
TEXT_BEFORE = 40  # bytes of a line that are shown before a match
_TEXT_CHARACTERS = 500
_ESCAPES = re.compile(rb"\x1b(?:\[[0-9;:?<=>]*[ -/]*[@-~]|\][^\x07\x1b\n\r]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])")
_PREFIX = re.compile(rb"\[(\d{1,6})\] ?")
RANK_BYTES = 400  # of a line; its rank is near the beginning
_RANK = re.compile(
    rb"(?:\b|_)rank['\"]?\s*[:=#]?\s*(\d{1,6})\b|^\[default(\d{1,6})\]|^\[\d+,(\d{1,6})\]<std", re.IGNORECASE
)


def without_escapes(data: bytes) -> bytes:
    """Removes escape sequences."""
    return _ESCAPES.sub(b"", data) if b"\x1b" in data else data


def host_of(line: bytes) -> Tuple[int, int]:
    """Returns the host number in a line's prefix (`[h] text`) and the length of that prefix; host 0 if there is
    none."""
    prefix = _PREFIX.match(line)
    return (int(prefix.group(1)), prefix.end()) if prefix else (0, 0)


def rank_of(line: bytes) -> Optional[int]:
    """Returns the rank that a line names, if several processes share a log: `[rank1]: text`, `rank=1`, or the prefix of
    torchrun (`[default1]:`) or mpirun (`[1,1]<stdout>:`)."""
    found = _RANK.search(line, 0, RANK_BYTES) if b"ank" in line or b"ANK" in line or line[:1] == b"[" else None
    return None if found is None else int(found.group(found.lastindex or 0))


def shown_text(data: bytes, start: int, mask: Mask) -> str:
    """Returns `data` from `start` on as readable text. A secret that begins before `start` is masked completely."""
    stream = mask.stream()
    stream.feed(data[max(0, start - WINDOW_BYTES) : start])
    text = (stream.feed(data[start:]) + stream.flush()).decode("utf-8", "replace")
    return text if len(text) <= _TEXT_CHARACTERS else text[:_TEXT_CHARACTERS] + "…"


class Window:
    """A part of a long line. Its own part is `start` to `end`; `last`: it includes the end of the line."""

    def __init__(self, line: "LongLine", data: bytes, offset: int, start: int, end: int, last: bool) -> None:
        self.line = line
        self.data = data
        self.offset = offset  # in the line
        self.start = start
        self.end = end
        self.last = last
        self.written = data[start:end] + (b"\r" if last else b"")  # its own part

    def line_at(self, offset: int) -> int:
        return self.line.number

    def text_at(self, offset: int, mask: Mask) -> str:
        """Returns the text around `offset` for display."""
        start = max(0, offset - TEXT_BEFORE)
        return ("…" if start + self.offset else "") + shown_text(self.data, start, mask)

    def by_host(self) -> Dict[int, "Window"]:
        """Returns the same window by its host, which is named only at the start of the line."""
        if self.line.host is None:
            self.line.host, self.line.prefix = host_of(self.data)
        cut = self.line.prefix if self.offset == 0 else 0
        window = Window(self.line, self.data[cut:], self.offset + cut, self.start, self.end - cut, self.last)
        return {self.line.host: window}


class LongLine:
    """Splits the bytes of one line into windows and keeps what was found in it so far."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.host: Optional[int] = None
        self.prefix = 0
        self.found: Set[int] = set()  # ids of the patterns that match this line
        self.read_to: Dict[int, int] = {}  # end of the last metric by pattern id
        self._raw = b""  # the start of an escape sequence
        self._text = b""
        self._offset = 0  # of the text, in the line
        self._before = 0  # length of the text that was in an earlier window

    def feed(self, data: bytes) -> Iterator[Window]:
        for start in range(0, len(data), WINDOW_BYTES):
            piece = self._raw + data[start : start + WINDOW_BYTES]
            cut = unfinished(piece)
            self._raw = piece[cut:]
            self._text += without_escapes(piece[:cut])
            while len(self._text) >= self._before + WINDOW_BYTES + OVERLAP_BYTES:
                end = self._before + WINDOW_BYTES
                yield Window(self, self._text[: end + OVERLAP_BYTES], self._offset, self._before, end, False)
                self._text = self._text[end - BEFORE_BYTES :]
                self._offset += end - BEFORE_BYTES
                self._before = BEFORE_BYTES

    def rest(self) -> Window:
        """Returns the last window, for the end of the line."""
        data = self._text + without_escapes(self._raw)
        return Window(self, data, self._offset, self._before, len(data), True)


LINE_BYTES = 64 << 10
GRAIN = 1 << 10
BOM = b"\xef\xbb\xbf"


class Block:
    """Whole lines, each ended by one `\\n` in `data` (the last may lack it), and which lines of the log they are."""

    def __init__(self, data: bytes, counted: bytes, first_line: int, numbers: Optional[List[int]] = None) -> None:
        self.data = data
        self.written = counted  # as long as `data`, but only with the log's own line feeds
        self._first_line = first_line
        self._numbers = numbers
        count = counted.count
        # Line feeds before each GRAIN bytes, counted once for all lookups of line numbers.
        self._before = [0, *accumulate([count(b"\n", at, at + GRAIN) for at in range(0, len(counted), GRAIN)])]
        self.line_feeds = self._before[-1]

    def line_at(self, offset: int) -> int:
        """Returns the line's number in the log, from 1."""
        grain = offset // GRAIN
        found = self._before[grain] + self.written.count(b"\n", grain * GRAIN, offset)
        return self._first_line + found if self._numbers is None else self._numbers[found]

    def bounds(self, offset: int) -> Tuple[int, int]:
        """Returns the start and end of the line around `offset`, without its line feed."""
        end = self.data.find(b"\n", offset)
        return self.data.rfind(b"\n", 0, offset) + 1, len(self.data) if end < 0 else end

    def text_at(self, offset: int, mask: Mask) -> str:
        """Returns the line around `offset` for display."""
        start, end = self.bounds(offset)
        return shown_text(self.data[:end], start, mask)

    def by_host(self) -> Dict[int, "Block"]:
        """Splits the lines by host and removes the `[h] ` prefixes. A line without a prefix belongs to host 0."""
        lines: Dict[int, List[bytes]] = {}
        numbers: Dict[int, List[int]] = {}
        offset = 0
        for line in self.data.split(b"\n"):
            if line:
                host, prefix = host_of(line)
                lines.setdefault(host, []).append(line[prefix:])
                numbers.setdefault(host, []).append(self.line_at(offset))
            offset += len(line) + 1
        return {
            host: Block(data, data, 0, [*numbers[host], numbers[host][-1]])
            for host in sorted(lines)
            for data in [b"\n".join(lines[host]) + b"\n"]
        }


LogPart = Union[Block, Window]


class Lines:
    """Splits incoming bytes into blocks of complete lines, and windows of lines that are too long."""

    def __init__(self) -> None:
        self.long_lines = 0
        self.lines = 0  # complete lines so far
        self._rest = b""  # the incomplete line
        self._long: Optional[LongLine] = None  # the incomplete line, if it is long
        self._first = True

    def feed(self, data: bytes) -> Iterator[LogPart]:
        if self._long is not None:
            end = _end_of_line(data, 0)
            yield from self._long.feed(data[:end])
            if end == len(data):
                return
            yield from self._ended(data[end : end + 1])
            data = data[end + 1 :]
        cut = data.rfind(b"\n") + 1
        cut = max(cut, data.rfind(b"\r", cut) + 1)
        if cut:
            whole = b"".join((self._rest, memoryview(data)[:cut]))
            self._rest = data[cut:]
            yield from self._parts(whole)
        else:
            self._rest += data
        if len(self._rest) > LINE_BYTES:
            rest, self._rest = self._rest, b""
            yield from self._begun(rest)

    def flush(self) -> Iterator[LogPart]:
        """Handles a last line without a line feed."""
        rest, self._rest = self._rest, b""
        if self._long is not None:
            yield from self._ended(b"\n")
        elif rest:
            yield self._block(rest)
            self.lines += 1

    def unfinished(self) -> Optional[LogPart]:
        """Returns the incomplete line; it is returned again once it is complete."""
        if self._long is not None:
            return self._long.rest()
        if not self._rest:
            return None
        data = without_escapes(self._rest)
        return Block(data, data, self.lines + 1)

    def _parts(self, data: bytes) -> Iterator[LogPart]:
        """Splits complete lines, some of which may be long."""
        taken = position = 0
        while len(data) - position > LINE_BYTES:
            window = position + LINE_BYTES
            end = max(data.rfind(b"\n", position, window + 1), data.rfind(b"\r", position, window + 1)) + 1
            if end:
                position = end
                continue
            if position > taken:
                yield self._block(data[taken:position])
            end = _end_of_line(data, window)
            yield from self._begun(data[position:end])
            yield from self._ended(data[end : end + 1])
            taken = position = end + 1
        if taken < len(data):
            yield self._block(data[taken:])

    def _begun(self, data: bytes) -> Iterator[LogPart]:
        self._long = LongLine(self.lines + 1)
        self.long_lines += 1
        yield from self._long.feed(self._without_mark(data))

    def _ended(self, by: bytes) -> Iterator[LogPart]:
        if self._long is not None:
            yield self._long.rest()
        self._long = None
        self.lines += by == b"\n"

    def _block(self, data: bytes) -> Block:
        visible = without_escapes(self._without_mark(data))
        shown = visible.replace(b"\r", b"\n") if b"\r" in visible else visible
        block = Block(shown, visible, self.lines + 1)
        self.lines += block.line_feeds
        return block

    def _without_mark(self, data: bytes) -> bytes:
        first, self._first = self._first, False
        return data[len(BOM) :] if first and data.startswith(BOM) else data


def _end_of_line(data: bytes, start: int) -> int:
    """Returns the end of the line that contains `start`, or of `data` if the line is incomplete."""
    end = data.find(b"\n", start)
    end = len(data) if end < 0 else end
    drawn_over = data.find(b"\r", start, end)
    return end if drawn_over < 0 else drawn_over
