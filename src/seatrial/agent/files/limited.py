"""Holds this process to its memory and its time, before it reads what may be made to break who reads it."""

from __future__ import annotations

import contextlib
import resource
import signal
from typing import Iterator, Optional

_MEMORY_BYTES = 1 << 30
_SECONDS = 300.0


class OverTime(Exception):
    def __init__(self) -> None:
        super().__init__("the time for reading was over")


class Limited:
    """From its making on. Files that are mapped do not count as memory. One for each process."""

    def __init__(self, memory_bytes: Optional[int], seconds: Optional[float]) -> None:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        wanted = memory_bytes or _MEMORY_BYTES
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))
        self._over = self._inside = False
        signal.signal(signal.SIGALRM, self._ring)
        # Again and again, for an exception that a library swallows does not end anything.
        signal.setitimer(signal.ITIMER_REAL, seconds or _SECONDS, 0.5)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Only in here OverTime is raised: when the time is over, and at once when it was over before."""
        if self._over:
            raise OverTime
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def _ring(self, number: int, frame: object) -> None:
        self._over = True
        if self._inside:
            raise OverTime
