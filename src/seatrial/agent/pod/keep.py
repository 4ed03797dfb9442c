"""`python AGENT keep SECONDS`: the container beside the trial, from which its files are fetched after it has ended.

It waits until the trial has ended in any way: the kernel then releases the trial's lock. After another SECONDS it
exits, so that files that are never fetched do not hold resources forever. On SIGTERM it exits at once.

If other containers of the pod never exit (a proxy that a webhook injected) and Seatrial is gone and does not delete
it, the pod stays until its deadline.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from typing import List, Optional, Tuple

from ..run.records import END_FILE
from .files import ALIVE, LOCK, STARTED, PodFolders

_POLL_S = 0.25
STILL_S = 30.0  # without a sign of life from a trial without a lock
_START_S = 3600.0  # for the trial to start; both containers have the same image, so it is already pulled


def main(arguments: List[str]) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: os._exit(0))
    try:
        keep_s = float(arguments[0])
    except (IndexError, ValueError):
        sys.stderr.write("usage: python AGENT keep SECONDS\n")
        return 2
    trial = Trial(PodFolders())
    start_until_s = time.monotonic() + _START_S
    ended_s: Optional[float] = None
    while True:
        now_s = time.monotonic()
        if ended_s is None:
            ended_s = trial.ended_s(now_s)
        never = ended_s is None and now_s >= start_until_s and not trial.started()
        if never or (ended_s is not None and now_s >= ended_s + keep_s):
            return 0
        time.sleep(_POLL_S)


class Trial:
    """The trial's container, seen through the shared volume."""

    def __init__(self, folders: PodFolders) -> None:
        self._folders = folders
        self._alive: Tuple[Optional[str], float] = (None, 0.0)  # its content, and since when

    def started(self) -> bool:
        return os.path.exists(self._folders.out(STARTED))

    def ended_s(self, now_s: float) -> Optional[float]:
        """The trial creates the mark after taking the lock, so a mark without a held lock means that it ended."""
        if not self.started():
            return None
        try:
            lock = os.open(self._folders.out(LOCK), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return now_s if os.path.exists(self._folders.out(END_FILE)) else self._silent_s(now_s)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return now_s
        except BlockingIOError:
            return None
        finally:
            os.close(lock)

    def _silent_s(self, now_s: float) -> Optional[float]:
        """A plain shell has no lock. It writes every few seconds, and counts as ended with its last write."""
        try:
            with open(self._folders.out(ALIVE)) as file:
                written = file.read()
        except OSError:
            written = ""
        if written != self._alive[0]:
            self._alive = (written, now_s)
        return self._alive[1] if now_s >= self._alive[1] + STILL_S else None
