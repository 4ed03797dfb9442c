"""The live file of a run: each change of a cell as a line, for any process that wants to watch.

1. It is for people: nothing is taken up from it, and a run goes on when it cannot be written.
2. It stays small: from time to time it is written anew with what is known of each cell, and a reader begins again.
3. Reading it twice changes nothing: a change says what a cell is, not what happened to it since.
"""

import contextlib
import os
import time
from pathlib import Path

import msgspec

from seatrial.job import Unreadable, decode
from seatrial.record.folder import write_whole

LIVE = "live.jsonl"
_MOST_BYTES = 4 << 20  # between two times that it is written anew


class LiveChange(msgspec.Struct, frozen=True, array_like=True):
    """`cell` is an id, or empty for what concerns the whole run."""

    at_s: float  # wall time
    cell: str
    state: str
    progress: str = ""


class LiveWriter:
    """Of the process that works on the run. One that takes it up begins anew, with its first change."""

    def __init__(self, folder: Path, most_bytes: int = _MOST_BYTES) -> None:
        self._path = folder / LIVE
        self._most = most_bytes
        self._known: dict[
            str, dict[str, LiveChange]
        ] = {}  # by cell: when it started and began to run, and its last change
        self._file: int | None = None
        self._bytes = 0

    def update(self, cell: str, state: str, progress: str = "") -> None:
        change = LiveChange(time.time(), cell, state, progress)
        known = self._known.setdefault(cell, {})
        if state == "starting":
            known.clear()
        if state in ("starting", "running"):
            known.setdefault(state, change)
        known["last"] = change
        with contextlib.suppress(OSError):  # a full disk, a folder that is gone
            if self._file is None or self._bytes > self._most:
                self._rewrite()
            else:
                self._bytes += os.write(self._file, _line(change))

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _rewrite(self) -> None:
        self.close()
        self._bytes = 0
        changes = sorted((change for of in self._known.values() for change in of.values()), key=lambda one: one.at_s)
        write_whole(self._path, b"".join(map(_line, dict.fromkeys(changes))), sync=False)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)


def _line(change: LiveChange) -> bytes:
    return msgspec.json.encode(change) + b"\n"


class LiveReader:
    """`changes` gives what is new since the last call; all that is known when the file was written anew."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LIVE
        self._inode = 0
        self._offset = 0

    def changes(self) -> list[LiveChange]:
        try:
            with open(self._path, "rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode or os.fstat(file.fileno()).st_size < self._offset:
                    self._inode, self._offset = inode, 0
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        found = []
        for line in whole.splitlines():
            with contextlib.suppress(Unreadable):  # of a disk that was full
                found.append(decode(line, LiveChange))
        return found
