"""A limit for work of this process that does not give way to others, such as a regular expression that backtracks."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class OverTime(Exception):
    """It took longer than it may."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises OverTime inside the block. By an alarm, for which Python's regular expressions stop; main thread only."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise OverTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
