"""The job's control groups: count and limit memory and processes, and kill all processes at once.

Supports version 2, version 1, and both side by side. Groups are created below the one of this process, if it is
writable; otherwise `plan` returns fewer or none, and the caller works without them.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import zlib
from functools import lru_cache
from typing import Dict, List, Optional, Set, Tuple

from .process import read_proc

PREFIX = "seatrial-"


class Cgroup:
    """`memory_limited`: the kernel enforces the memory limit and counts its OOM kills."""

    def __init__(self, folders: List[str]) -> None:
        self.folders: List[str] = []
        self.memory_limited = False
        self._planned = folders
        self._memory: Optional[str] = None
        self._counting: List[str] = []  # groups that count processes
        self._second = False  # whether the group that counts memory has version 2

    def create(self, memory_bytes: Optional[int]) -> None:
        for folder in self._planned:
            # Version 2 enables controllers only on request; version 1 has no such file.
            for controller in ["pids"] + (["memory"] if memory_bytes is not None else []):
                _write(os.path.join(os.path.dirname(folder), "cgroup.subtree_control"), "+%s" % controller)
            with contextlib.suppress(OSError):
                os.mkdir(folder, 0o755)
            if os.path.isdir(folder):  # perhaps left by a supervisor of this job that was killed here
                self.take(folder)
        self._counting = [folder for folder in self.folders if os.path.exists(os.path.join(folder, "pids.max"))]
        self.allow()
        limit = self._file("memory.max", "memory.limit_in_bytes")
        swap = self._file("memory.swap.max", "memory.memsw.limit_in_bytes")
        if limit is not None and swap is not None and memory_bytes is not None:
            self.memory_limited = _write(limit, str(memory_bytes))
            if self.memory_limited:  # the file does not exist without swap
                _write(swap, "0" if self._second else str(memory_bytes))

    def join(self, pid: int) -> None:
        """Instead of `create`: uses the existing groups of process `pid`."""
        own = _groups("self")
        for kind, folder in _groups(str(pid)).items():
            if kind in ("unified", "memory") and folder != own.get(kind) and os.path.isdir(folder):
                self.take(folder)

    def take(self, folder: str) -> None:
        """Uses an existing group."""
        self.folders.append(folder)
        for name in ("memory.current", "memory.usage_in_bytes"):
            if os.path.exists(os.path.join(folder, name)):
                self._memory, self._second = folder, name == "memory.current"

    def enter(self) -> None:
        """Adds the calling process to the groups."""
        for folder in self.folders:
            fd = os.open(os.path.join(folder, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)
            os.write(fd, b"0")
            os.close(fd)

    def entry_command(self) -> str:
        """The same for a shell. `command` bypasses inherited functions."""
        paths = (os.path.join(folder, "cgroup.procs") for folder in self.folders)
        return " && ".join("command echo 0 >%s" % shlex.quote(path) for path in paths)

    def members(self) -> Set[int]:
        found: Set[int] = set()
        for folder in self.folders:
            with contextlib.suppress(OSError):
                found.update(map(int, read_proc(os.path.join(folder, "cgroup.procs")).split()))
        return found

    def kill(self) -> bool:
        """Kills all processes at once; False if the kernel does not support that."""
        done = False
        for folder in self.folders:
            done = _write(os.path.join(folder, "cgroup.kill"), "1") or done
        for folder in [] if done else self._counting:
            _write(os.path.join(folder, "pids.max"), "0")  # no new processes while the others are killed
        return done

    def allow(self) -> None:
        """Sets the limit on processes, at the start and again after those of a step have been killed."""
        for folder in self._counting:
            _write(os.path.join(folder, "pids.max"), str(most_processes()))

    def _file(self, second: str, first: str) -> Optional[str]:
        """Returns a file of the group that counts memory, by its name in version 2 and in version 1."""
        return None if self._memory is None else os.path.join(self._memory, second if self._second else first)

    @property
    def oom_file(self) -> Optional[str]:
        """The kernel's file with a line `oom_kill N`."""
        return self._file("memory.events", "memory.oom_control")

    def memory_bytes(self) -> Optional[int]:
        """Returns the memory of the job's processes, without the page cache."""
        path = self._file("memory.stat", "memory.stat")
        names = (b"anon", b"shmem") if self._second else (b"total_rss", b"total_shmem")
        try:
            lines = [line.split() for line in read_proc(path).splitlines()] if path is not None else []
            return sum(int(count) for name, count in lines if name in names) if lines else None
        except (OSError, ValueError):
            return None

    def highest_bytes(self) -> Optional[int]:
        """Returns the highest charge so far, including the page cache: an upper bound for what processes used."""
        return _read_number(self._file("memory.peak", "memory.max_usage_in_bytes"))

    def forget_highest(self) -> None:
        """Resets the highest charge for the next step (version 1 only; version 2 keeps the job's)."""
        if self._memory is not None and not self._second:
            _write(os.path.join(self._memory, "memory.max_usage_in_bytes"), "0")

    def remove(self) -> List[str]:
        """Removes the groups and returns those that could not be removed."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        self.folders = list(filter(os.path.exists, self.folders))
        return self.folders


def plan(job_folder: str) -> List[str]:
    """Returns the folders that `create` will make. They are known in advance, so that none is lost if the process is
    killed.

    Their names contain the job's name and a checksum of its folder, because two users may have jobs with the same name.
    """
    name = "%s%s-%08x" % (PREFIX, os.path.basename(job_folder)[:200], zlib.crc32(job_folder.encode()))
    parents = _groups("self")
    wanted = [parents[kind] for kind in ("unified", "memory", "pids") if kind in parents]
    return [os.path.join(parent, name) for parent in wanted if os.access(parent, os.W_OK)]


@lru_cache(maxsize=None)
def most_processes() -> int:
    """Returns the limit on a job's processes and threads: half of the machine's, so that Seatrial can still stop a fork
    bomb. A lower limit would break training jobs, which have thousands."""
    limits = [_read_number("/proc/sys/kernel/%s" % name) for name in ("pid_max", "threads-max")]
    return max(1024, min([limit for limit in limits if limit], default=32768) // 2)


@lru_cache(maxsize=None)
def _groups(process: str) -> Dict[str, str]:
    """Maps each kind to the folder of a process's group. Cached: a zygote's children are in the same groups."""
    groups: Dict[str, str] = {}
    try:
        with open("/proc/self/mountinfo") as file:
            mounts = [_mount(line) for line in file if " - cgroup" in line]
        with open("/proc/%s/cgroup" % process) as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return groups
    for _, controllers, path in lines:
        for kind in controllers.split(",") if controllers else ["unified"]:
            for root, point, options in mounts:
                if kind in options and (path + "/").startswith(root.rstrip("/") + "/"):
                    groups.setdefault(kind, os.path.normpath(os.path.join(point, os.path.relpath(path, root))))
    return groups


def _mount(line: str) -> Tuple[str, str, List[str]]:
    before, _, after = line.rstrip("\n").partition(" - ")
    fields, (kind, _, options) = before.split(), after.split()[:3]
    return fields[3], fields[4], ["unified"] if kind == "cgroup2" else options.split(",")


def _write(path: str, text: str) -> bool:
    try:
        # No O_CREAT: False if the kernel has no such file.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "w") as file:
            file.write(text)
        return True
    except OSError:
        return False


def _read_number(path: Optional[str]) -> Optional[int]:
    try:
        return None if path is None else int(read_proc(path))
    except (OSError, ValueError):
        return None
