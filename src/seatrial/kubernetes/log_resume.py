"""Takes up a log that was cut, so that no line is lost and none comes twice. Pure: bytes in, lines out.

The server is asked for timestamps; they tell lines apart. After a cut it is asked for everything from a second before
the newest line, because it counts in whole seconds and because two streams of one container may be written a little
out of order; of what comes then, each line that was given before is left out once for every time that it was given.
A line longer than a piece is given in pieces; its given bytes are counted, so that it too goes on where it was cut.
"""

import re
from datetime import UTC, datetime
from typing import NamedTuple

PIECE_BYTES = 1 << 18
BACK_S = 1  # how far before the newest line is asked again
STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)(?= |$)")
MOST_NOTICES = 20


class LogLine(NamedTuple):
    """`text` ends with a newline, unless it is a piece of a line that goes on."""

    stamp: str  # the node's, RFC 3339, with nanoseconds
    text: bytes


class LogResume:
    def __init__(self) -> None:
        self.notices: list[str] = []  # what the node said of itself within the log
        self._given: dict[int, dict[bytes, int]] = {}  # by second: how many lines of each stamp
        self._newest = -1
        self._second: tuple[bytes, int] = (b"", -1)
        self._open: tuple[bytes, int] | None = None  # a line of which only pieces were given: its stamp, its bytes
        self._skip: dict[bytes, int] = {}
        self._rest = b""
        self._inside: bytes | None = None  # the stamp of the line in whose middle this connection is
        self._position = 0  # how far this connection is in that line
        self._ignore = False  # until the end of this line, which was given before
        self._resumed = False
        self._asked_s = 0
        self.lines = 0
        self.gaps = 0  # how often lines may be missing: the node threw a part away while we were cut off
        self._last: bytes | None = None  # the stamp of the line that was given last
        self._anchor: bytes | None = None  # the same, until this connection has shown it again

    def since(self) -> str | None:
        """What the next connection asks for; None is everything."""
        if self._newest < 0:
            return None
        return datetime.fromtimestamp(self._newest - BACK_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def connected(self) -> None:
        """A new connection begins."""
        self._rest, self._inside, self._ignore = b"", None, False
        self._resumed = self._newest >= 0
        self._asked_s = self._newest - BACK_S if self._resumed else 0
        self._skip = {stamp: count for bucket in self._given.values() for stamp, count in bucket.items()}
        self._anchor = self._last

    def feed(self, block: bytes) -> list[LogLine]:
        given: list[LogLine] = []
        *whole, self._rest = (self._rest + block if self._rest else block).split(b"\n")
        for text in whole:
            self._take(text, True, given)
        if len(self._rest) > PIECE_BYTES:
            piece, self._rest = self._rest, b""
            self._take(piece, False, given)
        self.lines += len(given)
        return given

    def finish(self) -> list[LogLine]:
        """After the last connection: what stands in the log without a newline at its end."""
        given: list[LogLine] = []
        if self._rest:
            self._take(self._rest, False, given)
            self._rest = b""
        return given

    def _take(self, text: bytes, ended: bool, given: list[LogLine]) -> None:
        """A line, or a piece of one that goes on."""
        stamp = self._inside
        if stamp is None:
            found = STAMP.match(text)
            stamp = found[0] if found else b""
            if not found or self._second_of(stamp) < self._asked_s:
                # Without a stamp, or with one that we did not ask for: text that looks like one.
                self._unstamped(text)
                found = None
            text = text[found.end() + 1 :] if found else b""
            self._ignore = not found or self._given_before(stamp)
            self._position = 0
            if not self._ignore:
                self._close_other(stamp, given)
        self._inside = None if ended else stamp
        if self._ignore:
            return
        before = self._open[1] if self._open else 0
        new = text[max(0, before - self._position) :]
        self._position += len(text)
        if ended:
            self._note(stamp)
            self._open = None
            given.append(LogLine(stamp.decode(), new + b"\n"))
        else:
            self._open = (stamp, max(before, self._position))
            if new:
                given.append(LogLine(stamp.decode(), new))

    def _given_before(self, stamp: bytes) -> bool:
        left = self._skip.get(stamp, 0)
        if left:
            self._skip[stamp] = left - 1
            if stamp == self._anchor and left == 1:
                self._anchor = None
        elif self._anchor is not None:
            # What is new stands behind the line that was given last, unless that is not in the node's file any more:
            # then others may have gone with it.
            self._anchor = None
            self.gaps += 1
        return left > 0

    def _close_other(self, stamp: bytes, given: list[LogLine]) -> None:
        """A line of which pieces were given, and that is not there any more (its file was rotated away), ends here."""
        if self._open is not None and self._open[0] != stamp:
            given.append(LogLine(self._open[0].decode(), b"\n"))
            self._open = None

    def _note(self, stamp: bytes) -> None:
        self._last = stamp
        second = self._second_of(stamp)
        if second > self._newest:
            self._newest = second
            self._given = {key: value for key, value in self._given.items() if key >= second - BACK_S}
        if second >= self._newest - BACK_S:
            bucket = self._given.setdefault(second, {})
            bucket[stamp] = bucket.get(stamp, 0) + 1

    def _second_of(self, stamp: bytes) -> int:
        if stamp[:19] != self._second[0]:
            try:
                second = int(datetime.fromisoformat(stamp[:19].decode() + _zone(stamp)).timestamp())
            except ValueError:  # the form of a stamp, but no time
                second = -1
            self._second = (stamp[:19], second)
        return self._second[1]

    def _unstamped(self, text: bytes) -> None:
        """The end of a line whose beginning was not asked for, or words of the node itself."""
        if self._resumed:
            self._resumed = False
            return
        if text.strip() and len(self.notices) < MOST_NOTICES:
            self.notices.append(text[:500].decode(errors="replace"))


def _zone(stamp: bytes) -> str:
    return "+00:00" if stamp.endswith(b"Z") else stamp[-6:].decode()
