"""A line that is too long to be held: looked at in windows that overlap, so that all of it is seen in bounded memory.

A window has its own part, and around it some of what is before (for a pattern that asks for that) and after (for a
match that starts in its own part and ends behind it). Of a match whose parts are further from each other than
OVERLAP_BYTES only those are surely found that start and end in one window.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, Optional, Set, Tuple

from ..masking.escapes import unfinished
from ..masking.mask import Mask

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
        self.read_to: Dict[str, int] = {}  # by name, the end of the last figure
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
