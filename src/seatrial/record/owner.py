"""Who works on a run: one process at a time, known by host, boot, process and its start."""

import fcntl
import os
import time
from pathlib import Path

import msgspec

from seatrial import SeatrialError
from seatrial.job import Unreadable, read_json
from seatrial.job.reading import boot_id, process_start


class Owner(msgspec.Struct, frozen=True):
    """A process is (boot, pid, start time), never a pid alone."""

    host: str
    boot: str
    pid: int
    start: int
    since_s: float

    @property
    def here(self) -> bool:
        """Whether it is, or was, a process of this machine since that was started: only then can it be looked for."""
        return self.host == os.uname().nodename and self.boot == boot_id()

    def works_on(self, folder: Path) -> bool:
        """Whether it does now. Of a process of another machine, by the lock, where the folder's file system has one
        for all machines."""
        if self.here:
            return self.alive()
        try:
            file = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def alive(self) -> bool:
        """Whether this very process still runs, as far as can be seen from this host."""
        return self.here and process_start(self.pid) == self.start


class RunOwned(SeatrialError):
    """Somebody else has the run."""

    def __init__(self, folder: Path, owner: Owner | None) -> None:
        self.owner = owner
        who = "another process"
        if owner:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner.since_s))
            who = f"process {owner.pid} on {owner.host} (since {since})"
        super().__init__(f"{folder.name} is being run by {who}; `seatrial cancel {folder.name}` stops it")


class Ownership:
    """Holds the lock of a run folder from `take` to `release`, or to this process's death, however it comes."""

    def __init__(self, file: int) -> None:
        self._file = file

    @classmethod
    def take(cls, folder: Path) -> "Ownership":
        file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise RunOwned(folder, owner_of(folder)) from None
        me = Owner(os.uname().nodename, boot_id(), os.getpid(), process_start(os.getpid()) or 0, time.time())
        os.ftruncate(file, 0)
        os.pwrite(file, msgspec.json.encode(me), 0)
        return cls(file)

    def release(self) -> None:
        os.ftruncate(self._file, 0)
        os.close(self._file)


def owner_of(folder: Path) -> Owner | None:
    """Who holds, or last held, the run; None when it was let go of in order."""
    try:
        return read_json(folder / "lock", Owner)
    except (OSError, Unreadable):
        return None
