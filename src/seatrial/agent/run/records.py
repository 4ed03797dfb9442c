"""The agent's records: one JSON object a line, one write a line, so that a kill tears at most the last one."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, Iterable

from ..masking.mask import Mask

_NAME = "records.jsonl"
_to_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
NOTES_BYTES = 32 << 20  # of all notes of a job; what goes beyond is counted


class RecordError(Exception):
    """A record could not be written: what the job does from here on would not be known."""

    def __init__(self, path: str, reason: OSError) -> None:
        super().__init__("cannot write %s: %s" % (path, reason))


class RecordsFile:
    """Raises RecordError once; after that only `last` still tries."""

    def __init__(self, folder: str, mask: Mask, name: str = _NAME) -> None:
        self._path = os.path.join(folder, name)
        self._mask = mask
        self._torn = False
        self._failed = False
        self._notes_bytes = 0
        self.notes_omitted = 0
        try:
            self._fd = self._open()
        except OSError as error:
            self._failed = True
            raise RecordError(self._path, error) from error

    def begin(self, hardware: Dict[str, Any]) -> float:
        """The first record: who tells, and the one pair of wall and monotonic time."""
        host = os.uname().nodename
        return self.write("begin", version=1, wall_s=time.time(), host=host, pid=os.getpid(), hardware=hardware)

    def write(self, event: str, **fields: Any) -> float:
        """Append a record, give its time."""
        at_s = time.monotonic()
        self._append(self._line(dict(fields, event=event, at_s=round(at_s, 6))))
        return at_s

    def last(self, event: str, **fields: Any) -> None:
        """A record that is tried even after others failed; there may be room again."""
        self._failed = False
        self.write(event, **fields)

    def note(self, step: int, data: Any, ours: Iterable[str] = ()) -> bool:
        """False: there are too many already. `ours`: words in it that are never secrets."""
        line = self._line({"event": "note", "step": step, "at_s": round(time.monotonic(), 6), "data": data}, ours)
        if self._notes_bytes + len(line) > NOTES_BYTES:
            self.notes_omitted += 1
            return False
        self._notes_bytes += len(line)
        self._append(line)
        return True

    def restore(self) -> None:
        """Put the file back when the job deleted it."""
        if os.fstat(self._fd).st_nlink:
            return
        try:
            new = self._open()
            with open("/proc/self/fd/%d" % self._fd, "rb") as source:
                for block in iter(lambda: source.read(1 << 20), b""):
                    os.write(new, block)
        except OSError as error:
            self._failed = True
            raise RecordError(self._path, error) from error
        os.close(self._fd)
        self._fd = new

    def close(self) -> None:
        os.close(self._fd)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _line(self, record: Any, ours: Iterable[str] = ()) -> bytes:
        return _to_text(self._mask.data(record, ours)).encode("utf-8", "replace") + b"\n"

    def _append(self, line: bytes) -> None:
        if self._failed:
            return
        view = memoryview(b"\n" + line if self._torn else line)
        try:
            while view:  # a short write says that the next one will raise
                view = view[os.write(self._fd, view) :]
                self._torn = bool(view)
        except OSError as error:
            self._failed = True
            raise RecordError(self._path, error) from error
