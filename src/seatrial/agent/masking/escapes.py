"""Invisible parts of a text: escape sequences, control characters, zero-width marks. Also maps offsets of the visible
text back to the original.

Programs that display a text drop these parts and so rejoin a word that they split: a secret must be found across them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import AnyStr, Generic, List, Optional, Pattern, Tuple

MOST_TITLE = 4096  # characters of a window's title, or a link's address
_PARAMETERS = r"[0-?]{0,256}[ -/]{0,16}[@-~]"  # of a control sequence
_SOME_PARAMETERS = r"[0-?]{1,256}[ -/]{0,16}[@-~]"  # few terminals read U+009B; alone it is just not shown
_SEQUENCE = r"\x1b(?:\[%s|\][^\x07\x1b\n\r]{0,%d}(?:\x07|\x1b\\)|[ -/]{0,4}[0-Z\\^-~])" % (_PARAMETERS, MOST_TITLE)
_CONTROLS = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
_MARKS = "\x9b%s|[\x80-\x84\x86-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufffe\uffff]" % _SOME_PARAMETERS
_MARKS_BYTES = (
    rb"\xc2\x9b%s|" % _SOME_PARAMETERS.encode()
    + rb"\xc2[\x80-\x84\x86-\x9f\xad]|\xe2(?:\x80[\x8b-\x8f\xaa-\xae]|\x81[\xa0-\xa9])|\xef(?:\xbb\xbf|\xbf[\xbe\xbf])"
)
_NOT_SHOWN = "%s|%s|%s" % (_SEQUENCE, _CONTROLS, _MARKS)
_RETURN = r"\r(?!\n)"  # moves back in the line: the text after it may hide a part, or follow it in a viewer
UNSEEN_TEXT = re.compile("%s|%s" % (_NOT_SHOWN, _RETURN))
_UNTIDY = re.compile(_NOT_SHOWN)

_ACTING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # what `tidy` removes from ASCII text


def tidy(text: str) -> str:
    """Removes what acts on a terminal; of a redrawn line, keeps the last state."""
    if text.isascii() and not _ACTING.search(text):  # fast path for almost all text
        return text
    plain = _UNTIDY.sub("", text.replace("\r\n", "\n"))  # secrets are masked through all of it, and through "\r"
    return "\n".join(line.rpartition("\r")[2] if "\r" in line else line for line in plain.split("\n"))


UNSEEN = re.compile(b"|".join([_SEQUENCE.encode(), _CONTROLS.encode(), _MARKS_BYTES, _RETURN.encode()]))
_UNFINISHED = re.compile(
    rb"(?:\x1b(?:\[[0-?]{0,256}[ -/]{0,16}|\][^\x07\x1b\n\r]{0,%d}\x1b?|[ -/]{0,4})" % MOST_TITLE
    + rb"|\xc2(?:\x9b[0-?]{0,256}[ -/]{0,16})?|\xe2[\x80\x81]?|\xef[\xbb\xbf]?|\r)\Z"
)
_CONTROL_BYTES = bytes(code for code in (*range(32), 127) if code not in b"\t\n")


class VisibleText(Generic[AnyStr]):
    """`data`, with `plain` as its visible part."""

    def __init__(self, data: AnyStr, unseen: Optional[Pattern[AnyStr]]) -> None:
        self.data: AnyStr = data
        self.plain: AnyStr = data if unseen is None else unseen.sub(data[:0], data)
        self._unseen: Optional[Pattern[AnyStr]] = unseen
        self._starts: Optional[Tuple[List[int], List[int]]] = None  # starts of visible pieces, in plain and in data

    def at(self, offset: int) -> int:
        """Returns the offset in `data` of a character of `plain`."""
        if self._unseen is None or len(self.plain) == len(self.data):
            return offset
        if self._starts is None:
            in_plain, in_data, removed = [0], [0], 0
            for found in self._unseen.finditer(self.data):
                removed += found.end() - found.start()
                if found.end() - removed == in_plain[-1]:
                    in_data[-1] = found.end()  # no visible text between the two
                else:
                    in_plain.append(found.end() - removed)
                    in_data.append(found.end())
            self._starts = in_plain, in_data
        in_plain, in_data = self._starts
        piece = bisect_right(in_plain, offset) - 1
        return in_data[piece] + offset - in_plain[piece]

    def replaced(self, spans: List[Tuple[int, int]], by: AnyStr, end: int) -> AnyStr:
        """Returns `data` up to `end` with each span of visible text, and invisible text inside it, replaced."""
        made: List[AnyStr] = []
        position = 0
        for start, stop in spans:
            made += [self.data[position : self.at(start)], by]
            position = self.at(stop - 1) + 1
        made.append(self.data[position:end])
        return self.data[:0].join(made)


def all_visible(data: bytes) -> bool:
    """Quick test for most data: nothing in it is invisible."""
    return data.isascii() and len(data.translate(None, _CONTROL_BYTES)) == len(data)


def unfinished(data: bytes) -> int:
    """Returns the offset of an incomplete invisible sequence at the end of `data`."""
    found = _UNFINISHED.search(data, max(0, len(data) - MOST_TITLE - 4))
    return found.start() if found else len(data)
