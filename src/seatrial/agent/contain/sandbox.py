"""The job's sandbox: control groups, CPU and memory limits, and its processes.

In a pod the kernel enforces the container's own limits. If it kills the whole container when memory runs out
(`memory.oom.group`, which kubelets set with control groups v2), the agent would die too, and its report with it. There
the agent enforces a slightly lower limit itself, so that only the step dies.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from typing import Iterable, List, Optional, Set

from .cgroup import Cgroup
from .process import living, oom_kills, own_descendants, read_proc, send_signal, stat

CHECK_S = 0.05  # poll interval for memory that the kernel does not limit, s
GROUPS = "/sys/fs/cgroup"
OOM_FILES = ("memory.events", "memory/memory.oom_control")
_SHARE = 0.95  # of a pod's memory; above it the kernel might act first


class Sandbox:
    """`oom_file` has a line `oom_kill N`, written by the kernel or by us: the number of OOM kills so far. `counter`: a
    group that is only read, because it counts shared memory once."""

    def __init__(
        self,
        cgroup: Optional[Cgroup] = None,
        cpus: Optional[List[int]] = None,
        memory_bytes: Optional[int] = None,
        oom_file: Optional[str] = None,
        counter: Optional[Cgroup] = None,
    ) -> None:
        self.cgroup = cgroup or Cgroup([])
        self.apart: Optional[int] = None  # a process group of this process that is not part of the job
        self._cpus = cpus
        self._counter = counter or Cgroup([])
        self._watched_bytes = None if self.cgroup.memory_limited else memory_bytes
        self._own_count = 0
        self._killed: Optional[int] = None  # the last process killed, until it is gone
        self._next_check_s = 0.0
        self._own_file = None if self._watched_bytes is None else oom_file
        self.oom_file: Optional[str] = self._own_file or self.cgroup.oom_file or oom_file
        self._write_count()

    def enter(self) -> None:
        """Applies the limits; called in a new process before exec."""
        self.cgroup.enter()
        if self._cpus:
            os.sched_setaffinity(0, self._cpus)
        if self._watched_bytes is not None:
            # This limit counts reserved memory, which may be far more than used memory (thread stacks), so it only
            # stops a single huge allocation; `check_memory` does the rest.
            ceiling = 2 * self._watched_bytes
            hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
            allowed = ceiling if hard == resource.RLIM_INFINITY else min(ceiling, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))

    def entry_command(self) -> Optional[str]:
        """Returns the shell command that replaces `enter`; empty if none is needed, None if a shell cannot do it."""
        if self._watched_bytes is not None or (self._cpus and set(self._cpus) != os.sched_getaffinity(0)):
            return None
        return self.cgroup.entry_command()

    def members(self) -> Set[int]:
        """Returns the job's processes, including zombies that have not been reaped."""
        found = (self.cgroup.members() | own_descendants()) - {os.getpid()}
        if found and self.apart is not None:
            there = ((pid, stat(pid)) for pid in found)
            found = {pid for pid, member in there if member is not None and member.group != self.apart}
        return found

    def kill(self, pids: Set[int]) -> None:
        """Sends SIGKILL to all processes."""
        self.cgroup.kill()
        send_signal(pids, signal.SIGKILL)

    def oom_kills(self) -> int:
        return oom_kills(self.oom_file, self._own_count)

    def memory_bytes(self) -> int:
        counted = self.cgroup.memory_bytes()
        if counted is not None:
            return counted
        return sum(member.resident_bytes for member in map(stat, self.members()) if member is not None)

    def next_check_s(self) -> Optional[float]:
        """Monotonic time of the next `check_memory`; None if the kernel enforces the limit."""
        return None if self._watched_bytes is None else self._next_check_s

    def check_memory(self) -> None:
        """Acts as the kernel would: above the limit, kills the largest process and counts it."""
        now_s = time.monotonic()
        if self._watched_bytes is None or now_s < self._next_check_s:
            return
        self._next_check_s = now_s + CHECK_S
        there = ((pid, stat(pid)) for pid in living(self.members()))
        sizes = {pid: member.resident_bytes for pid, member in there if member is not None}
        if self._killed in sizes:  # its memory is freed only once it is scheduled
            return
        self._killed = None
        if sizes and self._held_bytes(sizes.values()) > self._watched_bytes:
            self._own_count += 1
            self._write_count()
            self._killed = max(sizes, key=lambda pid: sizes[pid])
            send_signal([self._killed], signal.SIGKILL)

    def _held_bytes(self, sizes: Iterable[int]) -> int:
        """Returns the memory that counts against the limit. `sizes`: per process, with shared memory in each."""
        counted = self._counter.memory_bytes()
        return sum(sizes) if counted is None else counted

    def _write_count(self) -> None:
        if self._own_file is not None:
            # If the disk is full or the folder gone, `oom_kills` uses `_own_count`.
            with contextlib.suppress(OSError), open(self._own_file, "w") as file:
                file.write("oom_kill %d\n" % self._own_count)


def pod_sandbox(memory_bytes: Optional[int], own_file: str, groups: str = GROUPS) -> Sandbox:
    """`own_file`: for the number of kills, if this agent does them."""
    try:
        all_at_once = read_proc(os.path.join(groups, "memory.oom.group")).strip() == b"1"
    except OSError:
        all_at_once = False
    if memory_bytes and all_at_once:
        counter = Cgroup([])
        counter.take(groups)
        return Sandbox(None, None, int(memory_bytes * _SHARE), own_file, counter)
    return Sandbox(oom_file=oom_file(groups))


def oom_file(groups: str = GROUPS) -> Optional[str]:
    """The kernel's file with a line `oom_kill N` for this container."""
    return next(filter(os.path.exists, (os.path.join(groups, name) for name in OOM_FILES)), None)
