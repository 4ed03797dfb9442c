"""A log that is also this program's output, without ever waiting for who reads that."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import time
from collections import deque
from typing import Deque, Optional

from ..run.log import SEGMENTS, Log

BACKLOG_BYTES = 4 << 20  # that wait for a reader; what comes beyond is in the file only
LAST_S = 1.0  # at the end, for a reader that is merely slow


class TeeLog(Log):
    """The file has all of it; the output what its reader takes, and a line where something is left out."""

    def __init__(self, folder: str, segments: int = SEGMENTS) -> None:
        super().__init__(folder, segments)
        self._waiting: Deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped_bytes = 0
        self._to: Optional[int] = _output()

    def write(self, data: bytes) -> None:
        super().write(data)
        if self._to is None:
            return
        if self._waiting_bytes + len(data) > BACKLOG_BYTES:
            self.pump()
        if self._waiting_bytes + len(data) > BACKLOG_BYTES:
            self._dropped_bytes += len(data)
            return
        if self._dropped_bytes:
            notice = "\n[%d bytes are not shown here: they came faster than they were taken]\n" % self._dropped_bytes
            self._dropped_bytes = 0
            data = notice.encode() + data
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self.pump()

    def pump(self) -> None:
        """Hand on what is taken right now."""
        while self._waiting and self._to is not None:
            try:
                taken = os.write(self._to, self._waiting[0])
            except BlockingIOError:
                return
            except OSError:  # its reader has gone
                self._forget()
                return
            self._waiting_bytes -= taken
            rest = self._waiting.popleft()[taken:]
            if rest:
                self._waiting.appendleft(rest)

    def last(self) -> None:
        """Nothing more comes: wait a moment for who reads."""
        until_s = time.monotonic() + LAST_S
        self.pump()
        while self._waiting and self._to is not None and time.monotonic() < until_s:
            with contextlib.suppress(OSError):
                select.select([], [self._to], [], max(0.0, until_s - time.monotonic()))
            self.pump()
        self._forget()

    def _forget(self) -> None:
        if self._to is not None:
            os.close(self._to)
        self._to = None
        self._waiting.clear()
        self._waiting_bytes = 0


def _output() -> Optional[int]:
    """Standard output, not waited for. A description of its own where that can be had: others may share the first."""
    try:
        own = os.dup(1)
        if stat.S_ISREG(os.fstat(own).st_mode):
            return own  # takes everything at once, and knows where it is written to
        os.close(own)
    except OSError:  # there is none
        return None
    try:
        return os.open("/proc/self/fd/1", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # a socket; a pipe of another user
        own = os.dup(1)
        os.set_blocking(own, False)
        return own
