"""Whole lines out of bytes that come in any pieces: what a log is read by while it is being written.

What a terminal would not show is not matched either: colours are taken out, and each state of a progress bar (what a
carriage return draws over) is a line of its own. A line is numbered as an editor would, by line feeds alone. A line of
more than LINE_BYTES comes in windows, so memory is bounded whatever a job writes.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Dict, Iterator, List, Optional, Set, Tuple, Union

from ..masking.escapes import unfinished
from ..masking.mask import Mask

# A line that is too long to be held: looked at in windows that overlap, so that all of it is seen in bounded memory.
#
# A window has its own part, and around it some of what is before (for a pattern that asks for that) and after (for a
# match that starts in its own part and ends behind it). Of a match whose parts are further from each other than
# OVERLAP_BYTES only those are surely found that start and end in one window.


WINDOW_BYTES = 64 << 10
OVERLAP_BYTES = 8 << 10
BEFORE_BYTES = 256
TEXT_BEFORE = 40  # bytes of a line that are shown before what was found in it
_TEXT_CHARACTERS = 500
_ESCAPES = re.compile(rb"\x1b(?:\[[0-9;:?<=>]*[ -/]*[@-~]|\][^\x07\x1b\n\r]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])")
_PREFIX = re.compile(rb"\[(\d{1,6})\] ?")
RANK_BYTES = 400  # of a line: what names its rank is near its beginning
_RANK = re.compile(
    rb"(?:\b|_)rank['\"]?\s*[:=#]?\s*(\d{1,6})\b|^\[default(\d{1,6})\]|^\[\d+,(\d{1,6})\]<std", re.IGNORECASE
)


def without_escapes(data: bytes) -> bytes:
    """As patterns see it: without what acts on a terminal."""
    return _ESCAPES.sub(b"", data) if b"\x1b" in data else data


def host_of(line: bytes) -> Tuple[int, int]:
    """The host that a line is of (`[h] text`), and how long what says so is. A line that does not say is host 0's."""
    prefix = _PREFIX.match(line)
    return (int(prefix.group(1)), prefix.end()) if prefix else (0, 0)


def rank_of(line: bytes) -> Optional[int]:
    """The rank that a line is of, where several processes of a host write into one log: `[rank1]: text`, `rank=1`, and
    what torchrun (`[default1]:`) and mpirun (`[1,1]<stdout>:`) put before it."""
    found = _RANK.search(line, 0, RANK_BYTES) if b"ank" in line or b"ANK" in line or line[:1] == b"[" else None
    return None if found is None else int(found.group(found.lastindex or 0))


def shown_text(data: bytes, start: int, mask: Mask) -> str:
    """What a person sees of `data` from `start` on. A secret that begins before that is masked as a whole."""
    stream = mask.stream()
    stream.feed(data[max(0, start - WINDOW_BYTES) : start])
    text = (stream.feed(data[start:]) + stream.flush()).decode("utf-8", "replace")
    return text if len(text) <= _TEXT_CHARACTERS else text[:_TEXT_CHARACTERS] + "…"


class Window:
    """A part of a long line. Its own part goes from `start` to `end`; `last`: it has the line's end."""

    def __init__(self, line: "LongLine", data: bytes, offset: int, start: int, end: int, last: bool) -> None:
        self.line = line
        self.data = data
        self.offset = offset  # in the line
        self.start = start
        self.end = end
        self.last = last

    def line_at(self, offset: int) -> int:
        return self.line.number

    def text_at(self, offset: int, mask: Mask) -> str:
        """The line around `offset`, for a person."""
        start = max(0, offset - TEXT_BEFORE)
        return ("…" if start + self.offset else "") + shown_text(self.data, start, mask)

    def by_host(self) -> Dict[int, "Window"]:
        """The same window, with its host, which stands at the start of the line alone."""
        if self.line.host is None:
            self.line.host, self.line.prefix = host_of(self.data)
        cut = self.line.prefix if self.offset == 0 else 0
        window = Window(self.line, self.data[cut:], self.offset + cut, self.start, self.end - cut, self.last)
        return {self.line.host: window}


class LongLine:
    """Takes the bytes of one line, gives windows of it. What was found in it so far is kept here."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.host: Optional[int] = None
        self.prefix = 0
        self.found: Set[int] = set()  # ids of patterns that it matches
        self.read_to: Dict[int, int] = {}  # by the id of a pattern, the end of its last metric
        self._raw = b""  # the start of an escape sequence
        self._text = b""
        self._offset = 0  # of the text, in the line
        self._before = 0  # so much of the text has been in a window

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
        """What no window had yet as its own part: the last one, when the line has ended."""
        data = self._text + without_escapes(self._raw)
        return Window(self, data, self._offset, self._before, len(data), True)


LINE_BYTES = 64 << 10
GRAIN = 1 << 10
BOM = b"\xef\xbb\xbf"


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

    def text_at(self, offset: int, mask: Mask) -> str:
        """The line around `offset`, for a person."""
        start, end = self.bounds(offset)
        return shown_text(self.data[:end], start, mask)

    def by_host(self) -> Dict[int, "Block"]:
        """Lines of several hosts, apart, without the `[h] ` that says whose each is. A line without is host 0's."""
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
    """Takes what comes, gives blocks of lines that have ended, and windows of a line that is too long for one."""

    def __init__(self) -> None:
        self.long_lines = 0
        self.lines = 0  # that have ended; with the rest, if there is one, all that there are
        self._rest = b""  # the line that has not ended,
        self._long: Optional[LongLine] = None  # or one that is long already
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
        """The last line may lack its end."""
        rest, self._rest = self._rest, b""
        if self._long is not None:
            yield from self._ended(b"\n")
        elif rest:
            yield self._block(rest)
            self.lines += 1

    def unfinished(self) -> Optional[LogPart]:
        """The line that has not ended yet, to look at; it will come again."""
        if self._long is not None:
            return self._long.rest()
        if not self._rest:
            return None
        data = without_escapes(self._rest)
        return Block(data, data, self.lines + 1)

    def _parts(self, data: bytes) -> Iterator[LogPart]:
        """Whole lines, of which some may be long."""
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
    """Where the line that is there at `start` ends; the end of `data` when it does not."""
    end = data.find(b"\n", start)
    end = len(data) if end < 0 else end
    drawn_over = data.find(b"\r", start, end)
    return end if drawn_over < 0 else drawn_over
