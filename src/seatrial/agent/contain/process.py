"""What the kernel knows of processes: who they are beyond their number, and who came from whom."""

from __future__ import annotations

import contextlib
import os
from functools import lru_cache
from typing import Callable, Iterable, List, NamedTuple, Optional, Set

PR_SET_CHILD_SUBREAPER = 36
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that matter here."""

    state: str
    parent: int
    group: int
    session: int
    cpu_s: float  # its own and that of the children that it waited for
    start: int  # in ticks since boot: with the number and the boot it names a process for good
    resident_bytes: int


def read_proc(path: str) -> bytes:
    """A small file of the kernel, at a quarter of the price of a file object."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, 1 << 16)
        while data and len(data) % (1 << 12) == 0:  # what fills whole pages may go on
            more = os.read(fd, 1 << 16)
            if not more:
                break
            data += more
        return data
    finally:
        os.close(fd)


def oom_kills(path: Optional[str], unknown: int = 0) -> int:
    """The count in a file with a line `oom_kill N`; `unknown` where there is none."""
    try:
        for line in read_proc(path).splitlines() if path is not None else ():
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return unknown


def stat(pid: int) -> Optional[Stat]:
    """None when there is no such process."""
    try:
        fields = read_proc("/proc/%d/stat" % pid).rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    parent, group, session = map(int, fields[1:4])
    cpu_s = sum(map(int, fields[11:15])) / TICKS_PER_S
    return Stat(fields[0].decode(), parent, group, session, cpu_s, int(fields[19]), int(fields[21]) * PAGE_BYTES)


@lru_cache(maxsize=None)
def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


try:
    import ctypes

    _prctl: Optional[Callable[..., int]] = ctypes.CDLL(None).prctl
except (ImportError, OSError, AttributeError):  # a Python without ctypes, a libc without prctl
    _prctl = None


def become_subreaper() -> bool:
    """Whatever descends from this process comes back to it when its own parent dies. False where it cannot be had."""
    return _prctl is not None and _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def own_descendants() -> Set[int]:
    """All processes below this one, which is their subreaper; zombies too."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # who has no child has no other descendant either: they would have come back to it
        return set()
    return descendants(os.getpid())


def descendants(root: int) -> Set[int]:
    """All processes below `root`, zombies too."""
    found: Set[int] = set()
    waiting = _children(root)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting.extend(_children(pid))
    return found


def _children(pid: int) -> List[int]:
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except (FileNotFoundError, ProcessLookupError):
        return []
    found: List[int] = []
    for thread in threads:
        try:
            found.extend(map(int, read_proc("/proc/%d/task/%s/children" % (pid, thread)).split()))
        except ProcessLookupError:
            continue
        except FileNotFoundError:
            if os.path.exists("/proc/%d/task/%s" % (pid, thread)):  # a kernel without that file
                everyone = [(int(name), stat(int(name))) for name in os.listdir("/proc") if name.isdigit()]
                return [other for other, member in everyone if member is not None and member.parent == pid]
    return found


def living(pids: Iterable[int]) -> Set[int]:
    """Those that are neither gone nor merely waiting for somebody to ask how they ended."""
    return {pid for pid in pids for member in [stat(pid)] if member is not None and member.state not in "ZX"}


def send_signal(pids: Iterable[int], number: int) -> None:
    """A signal to each that still is."""
    for pid in pids:
        # One that became another user's cannot be ended by us: the proof at the end will say so.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def write_whole(path: str, data: bytes) -> None:
    """Write, fsync, rename: there is the old file or the new one, never a part."""
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(path + ".new", path)
