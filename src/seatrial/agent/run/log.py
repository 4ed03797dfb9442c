"""A log with bounded size on disk: its first and its last part are kept.

`log.txt` has the first HEAD_BYTES. The rest goes to `log.txt.1`, `log.txt.2`, ... of exactly SEGMENT_BYTES each (the
last one is shorter). The newest full segments (SEGMENTS by default) and the current one are kept. The size of the gap
follows from the numbers alone, (lowest number - 1) * SEGMENT_BYTES, so that no state is lost if the writer is killed.
Readers join the parts.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
from typing import Optional

from ..contain.process import copy_open

HEAD_BYTES = 4 << 20
SEGMENT_BYTES = 1 << 20
SEGMENTS = 4
LOG_NAME = "log.txt"


class Log:
    """Never raises if the disk is full or gone: lost bytes are counted, and `error` has the reason."""

    def __init__(self, folder: str, segments: int = SEGMENTS) -> None:
        self.total_bytes = 0
        self.error = ""
        self._path = os.path.join(folder, LOG_NAME)
        self.segments = segments
        self._number = 0  # of the current segment; 0 is the head
        self._room = HEAD_BYTES
        self._lost = 0
        self._fd: Optional[int] = self._open()

    @property
    def omitted_bytes(self) -> int:
        return self._lost + max(0, self._number - 1 - self.segments) * SEGMENT_BYTES

    def write(self, data: bytes) -> None:
        self.total_bytes += len(data)
        view = memoryview(data)
        while view:
            if self._room == 0:
                self._next_segment()
            if self._fd is None:
                self._lost += len(view)
                return
            try:
                written = os.write(self._fd, view[: self._room])
            except OSError as error:
                self._give_up(error)
                continue
            self._room -= written
            view = view[written:]

    def restore(self) -> None:
        """Restores the current part if the job deleted it."""
        if self._fd is None or os.fstat(self._fd).st_nlink:
            return
        old, self._fd = self._fd, None
        with contextlib.suppress(OSError):
            os.unlink(self._part())  # the job may have put something else there
        self._fd = self._open()
        if self._fd is None:
            os.close(old)
        else:
            copy_open(old, self._fd)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _next_segment(self) -> None:
        self.close()
        if self.error:
            return
        self._number += 1
        self._room = SEGMENT_BYTES
        oldest = self._number - self.segments - 1
        if oldest >= 1:
            try:
                os.unlink("%s.%d" % (self._path, oldest))
            except FileNotFoundError:
                pass  # the job may have deleted it
            except OSError as error:
                self._give_up(error)
                return
        self._fd = self._open()

    def _part(self) -> str:
        return "%s.%d" % (self._path, self._number) if self._number else self._path

    def _open(self) -> Optional[int]:
        try:
            return os.open(self._part(), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._give_up(error)
            return None

    def _give_up(self, error: OSError) -> None:
        """Stops writing: after a failed write, segment sizes are no longer reliable."""
        self.error = "the log is incomplete: %s" % error
        self.close()


BACKLOG_BYTES = 4 << 20  # waiting for the reader; anything beyond is only in the file
LAST_S = 1.0  # wait at the end for a slow reader


class TeeLog(Log):
    """The file has everything; standard output has what its reader accepts, and a line for each gap. A thread writes
    there, so that the job never waits for the reader."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._waiting: "queue.SimpleQueue[bytes]" = queue.SimpleQueue()
        self._put_bytes = self._taken_bytes = self._dropped_bytes = 0
        self._writer = threading.Thread(target=self._pass_on, daemon=True)
        self._writer.start()

    def write(self, data: bytes) -> None:
        super().write(data)
        if self._put_bytes - self._taken_bytes + len(data) > BACKLOG_BYTES:
            self._dropped_bytes += len(data)
            return
        if self._dropped_bytes:
            notice = "\n[%d bytes not shown: they were written faster than they were read]\n" % self._dropped_bytes
            self._dropped_bytes = 0
            data = notice.encode() + data
        self._put_bytes += len(data)
        self._waiting.put(data)

    def last(self) -> None:
        """Waits up to LAST_S for the reader to take the rest."""
        self._waiting.put(b"")
        self._writer.join(LAST_S)

    def _pass_on(self) -> None:
        with contextlib.suppress(OSError):  # there is no standard output, or its reader closed the pipe
            for data in iter(self._waiting.get, b""):
                while data:
                    select.select([], [1], [])  # others may have made it non-blocking
                    taken = os.write(1, data)
                    self._taken_bytes += taken
                    data = data[taken:]
