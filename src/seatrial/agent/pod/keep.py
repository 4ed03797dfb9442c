"""`python AGENT keep SECONDS`: the container beside the trial, where its files can be fetched when it has ended.

It waits until the trial has ended, in whatever way: the kernel takes its lock from it. Then for SECONDS, and leaves:
what is never fetched does not hold its place for ever. SIGTERM, or a file `collected`, and it leaves at once.

Others may be in the pod that never end by themselves (a proxy that a webhook put there), and nobody may be left who
would delete it. A pod may not end itself; but one that has more in a volume than that may hold is ended by its node,
all of it: that is what the volume `end` is for.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from typing import List, Optional, Tuple

from ..run.records import END_FILE
from .files import ALIVE, COLLECTED, END_BYTES, END_VOLUME, LOCK, STARTED, PodFolders

_POLL_S = 0.25
STILL_S = 30.0  # without a sign of a trial that has no lock
_START_S = 3600.0  # for a trial that does not start; both containers have the same image, which is there by then


def main(arguments: List[str]) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: os._exit(0))
    try:
        keep_s = float(arguments[0])
    except (IndexError, ValueError):
        sys.stderr.write("usage: python AGENT keep SECONDS\n")
        return 2
    folders = PodFolders()
    trial = Trial(folders)
    start_until_s = time.monotonic() + _START_S
    ended_s: Optional[float] = None
    while not os.path.lexists(folders.out(COLLECTED)):
        now_s = time.monotonic()
        if ended_s is None:
            ended_s = trial.ended_s(now_s)
        never = ended_s is None and now_s >= start_until_s and not trial.started()
        if never or (ended_s is not None and now_s >= ended_s + keep_s):
            break
        time.sleep(_POLL_S)
    try:  # pods with no others in them are over before their node looks at the volume
        with open(os.path.join(folders.root, END_VOLUME, "full"), "wb") as file:
            file.write(b"\0" * END_BYTES)
    except OSError as error:  # none is there, or it is full, which is as well
        sys.stderr.write("cannot stop the pod early; its deadline will stop it: {}\n".format(error))
    return 0


class Trial:
    """The container beside this one, by what it leaves in the volume that they share."""

    def __init__(self, folders: PodFolders) -> None:
        self._folders = folders
        self._alive: Tuple[Optional[str], float] = (None, 0.0)  # what it wrote, and since when

    def started(self) -> bool:
        return os.path.exists(self._folders.out(STARTED))

    def ended_s(self, now_s: float) -> Optional[float]:
        """The mark comes after the lock, so whoever has made it has the lock, unless it is gone."""
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
        """One that is a mere shell has no lock; it writes something new every few seconds, and ended with the last."""
        try:
            with open(self._folders.out(ALIVE)) as file:
                written = file.read()
        except OSError:
            written = ""
        if written != self._alive[0]:
            self._alive = (written, now_s)
        return self._alive[1] if now_s >= self._alive[1] + STILL_S else None
