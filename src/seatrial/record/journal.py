"""The journal of a run: append-only, one JSON line per event, each with its number and a checksum.

A line is written before and after each side effect. An incomplete last line, after a kill or a full disk, is dropped
when the journal is reopened; any other damaged line is an error.
"""

import os
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from seatrial.job import Unreadable, decode, read_regular
from seatrial.record.folder import RecordError

if TYPE_CHECKING:
    import asyncio

_MOST_BYTES = 1 << 30  # a cell needs about 2,000


class Journal:
    """Writes events. `at` is called with a name before and after every write and sync; tests kill the process there."""

    def __init__(self, path: Path, at: Callable[[str], None] = lambda point: None) -> None:
        self._path = path
        self._at = at
        entries, good_bytes = read_journal(path) if path.exists() else ([], 0)
        self.past = entries
        self._next = len(entries)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, good_bytes)
        self._end = os.lseek(self._file, 0, os.SEEK_END)
        self._syncing: asyncio.Task[None] | None = None
        self._unsynced: list[Path] = []
        self._broken: RecordError | None = None

    async def write(self, event: str, *, durable: bool = False, files: Sequence[Path] = (), **fields: Any) -> None:
        """Appends one event. With `durable`, returns once the `files` and then the event are on disk. Concurrent syncs
        are combined."""
        self.append(event, **fields)
        if durable:
            self._unsynced += files
            await self._sync()
            self._at(f"synced {event}")

    def append(self, event: str, **fields: Any) -> dict[str, Any]:
        """Appends one event without syncing, and returns its entry. Atomic for other tasks."""
        if self._broken:
            raise self._broken
        entry = {"n": self._next, "wall_s": time.time(), "at_s": time.monotonic(), "event": event, **fields}
        body = msgspec.json.encode(entry)
        line = left = b'%s,"crc":"%08x"}\n' % (body[:-1], zlib.crc32(body))
        try:
            self._at(f"before {event}")
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            os.ftruncate(self._file, self._end)
            self._broken = RecordError(f"{self._path}: cannot write: {error.strerror}")
            raise self._broken from error
        self._next += 1
        self._end += len(line)
        self._at(f"written {event}")
        return entry

    async def _sync(self) -> None:
        import asyncio

        # The current sync may have started before our line was written, so wait for the next one.
        if self._syncing:
            await asyncio.wait([self._syncing])
        if self._broken:
            raise self._broken
        if self._syncing is None or self._syncing.done():
            files, self._unsynced = self._unsynced, []
            self._syncing = asyncio.create_task(asyncio.to_thread(self._sync_all, files))
        await asyncio.shield(self._syncing)

    def _sync_all(self, files: list[Path]) -> None:
        """Runs in a thread. Records a failure here, because any of the waiting writers may wake first."""
        try:
            for path in files:
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fdatasync(file)
                finally:
                    os.close(file)
            os.fdatasync(self._file)
        except OSError as error:
            self._broken = RecordError(f"{self._path}: cannot sync: {error.strerror}")
            raise self._broken from error

    def close(self) -> None:
        os.close(self._file)


_TAIL = len(',"crc":"00000000"}')


def _decode(line: bytes, number: int) -> dict[str, Any] | None:
    """The entry of a complete, undamaged line with this number, or None."""
    body = line[:-_TAIL] + b"}"
    if line[-_TAIL:] != b',"crc":"%08x"}' % zlib.crc32(body):
        return None
    try:
        entry = decode(body, dict[str, Any])
    except Unreadable:
        return None
    return entry if entry.get("n") == number and isinstance(entry.get("event"), str) else None


def read_journal(path: Path, start_bytes: int = 0, first: int = 0) -> tuple[list[dict[str, Any]], int]:
    """All entries, and the offset of their end in the file. With `start_bytes`, reading starts at that offset, where
    entry `first` is expected. An incomplete last line is left out. Raises RecordError."""
    try:
        data = read_regular(path, _MOST_BYTES, follow=True, start_bytes=start_bytes)
    except Unreadable as error:
        raise RecordError(f"{path}: {error}") from error
    entries: list[dict[str, Any]] = []
    position = 0
    while position < len(data):
        end = data.find(b"\n", position)
        number = first + len(entries)
        entry = _decode(data[position:end], number) if end >= 0 else None
        if entry is None:
            if end >= 0 and data[end + 1 :].strip(b"\0\n"):
                raise RecordError(f"{path}:{number + 1}: damaged line, with more lines after it")
            break
        entries.append(entry)
        position = end + 1
    return entries, start_bytes + position
