"""What one step says: its output, of which the first and the last part are kept, and its notes."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

from ..masking.mask import Mask

_HEAD_BYTES = 16 << 10
_TAIL_BYTES = 48 << 10
_LINE_BYTES = 1 << 20  # of a note


class Output:
    """Takes masked bytes; `text` is safe to put into JSON whatever they were."""

    def __init__(self, mask: Mask) -> None:
        self.stream = mask.stream()
        self._head = b""
        self._tail = b""
        self._seen_bytes = 0

    def take(self, data: bytes) -> None:
        self._seen_bytes += len(data)
        room = _HEAD_BYTES - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail = (self._tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]

    @property
    def omitted_bytes(self) -> int:
        return self._seen_bytes - len(self._head) - len(self._tail)

    def text(self) -> str:
        if not self.omitted_bytes:
            return (self._head + self._tail).decode("utf-8", "replace")
        between = "\n[%d bytes left out here]\n" % self.omitted_bytes
        return self._head.decode("utf-8", "replace") + between + self._tail.decode("utf-8", "replace")


class Notes:
    """Splits what comes by the notes pipe into JSON objects; what is none, or too long for one, is counted."""

    def __init__(self) -> None:
        self.broken = 0
        self._rest = b""
        self._too_long = False

    def feed(self, data: bytes) -> List[Dict[str, Any]]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = []
        for line in lines:
            note = None if self._too_long else _parse(line)
            self._too_long = False
            if note is not None:
                found.append(note)
            elif line.strip():
                self.broken += 1
        if len(self._rest) > _LINE_BYTES:
            self._rest, self._too_long = b"", True
        return found

    def flush(self) -> List[Dict[str, Any]]:
        """The last line may lack its end."""
        return self.feed(b"\n")


def _parse(line: bytes) -> Optional[Dict[str, Any]]:
    try:
        note = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return note if isinstance(note, dict) else None
