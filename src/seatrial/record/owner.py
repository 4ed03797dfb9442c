"""The owner of a run: one process at a time, identified by host, boot, pid and start time."""

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
        """Whether it is or was a process of this machine since its last boot; only these can be looked up."""
        return self.host == os.uname().nodename and self.boot == boot_id()

    def works_on(self, folder: Path) -> bool:
        """Whether it owns the run now. Owners on other machines are detected by the lock, if the file system shares
        locks between machines."""
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
        """Whether this process is still running; False on any other host."""
        return self.here and process_start(self.pid) == self.start


class RunOwned(SeatrialError):
    """Another process owns the run."""

    def __init__(self, folder: Path, owner: Owner | None) -> None:
        self.owner = owner
        who = "another process"
        if owner:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner.since_s))
            who = f"process {owner.pid} on {owner.host} (since {since})"
        super().__init__(f"{folder.name} is owned by {who}; watch it with `seatrial attach {folder.name}`")


class Ownership:
    """Holds the lock of a run folder from `take` until `release` or the end of this process."""

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
    """The current or last owner of the run; None if it was released properly."""
    try:
        return read_json(folder / "lock", Owner)
    except (OSError, Unreadable):
        return None
