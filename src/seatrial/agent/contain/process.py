"""Processes as the kernel reports them: state, identity and ancestry."""

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
    cpu_s: float  # including children that it has waited for
    start: int  # in ticks since boot; unique together with the pid and the boot id
    resident_bytes: int


def read_proc(path: str) -> bytes:
    """Reads a small kernel file in a quarter of the time that a file object takes."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, 1 << 16)
        while data and len(data) % (1 << 12) == 0:  # a full page may be followed by more
            more = os.read(fd, 1 << 16)
            if not more:
                break
            data += more
        return data
    finally:
        os.close(fd)


def oom_kills(path: Optional[str], unknown: int = 0) -> int:
    """Returns N from the line `oom_kill N` of a file; `unknown` if there is none."""
    try:
        for line in read_proc(path).splitlines() if path is not None else ():
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return unknown


def stat(pid: int) -> Optional[Stat]:
    """Returns the process's status; None if it does not exist."""
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
    """Adopts orphaned descendants of this process. False if the system does not support it."""
    return _prctl is not None and _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def own_descendants() -> Set[int]:
    """Returns all descendants of this process, which must be a subreaper; including zombies."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # no child means no descendant: orphans would have been adopted
        return set()
    return descendants(os.getpid())


def descendants(root: int) -> Set[int]:
    """Returns all descendants of `root`, including zombies."""
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
    """Returns the processes that exist and are not zombies."""
    return {pid for pid in pids for member in [stat(pid)] if member is not None and member.state not in "ZX"}


def send_signal(pids: Iterable[int], number: int) -> None:
    """Sends a signal to each process that still exists."""
    for pid in pids:
        # A process of another user cannot be killed; the runner reports it at the end.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def write_whole(path: str, data: bytes) -> None:
    """Writes a file atomically: there is the old file or the new one, never a part."""
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(path + ".new", path)


def copy_open(old: int, new: int) -> None:
    """Copies a file that is still open, although it may be deleted, and closes it."""
    with open("/proc/self/fd/%d" % old, "rb") as source:
        for block in iter(lambda: source.read(1 << 20), b""):
            os.write(new, block)
    os.close(old)
