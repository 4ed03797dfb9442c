"""What holds a job's processes: its control groups, its CPUs, its memory; and who is in there.

In a pod the container's own limits hold, which the kernel keeps. Where the kernel, out of memory, ends all of a
container at once (`memory.oom.group`, as kubelets set it on version 2 of control groups), the agent would go too, and
with it what only it can report. There memory is watched from here, a little below the limit, so that the step dies and
the agent lives.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from typing import Iterable, List, Optional, Set

from .cgroup import Cgroup
from .process import living, oom_kills, own_descendants, read_proc, send_signal, stat

CHECK_S = 0.05  # how often memory is measured where the kernel does not limit it
GROUPS = "/sys/fs/cgroup"
OOM_FILES = ("memory.events", "memory/memory.oom_control")
_SHARE = 0.95  # of a pod's memory: more than that, and the kernel may be quicker


class Sandbox:
    """`oom_file` has a line `oom_kill N`, of the kernel or of ours: how often memory ran out so far."""

    def __init__(
        self,
        cgroup: Optional[Cgroup] = None,
        cpus: Optional[List[int]] = None,
        memory_bytes: Optional[int] = None,
        oom_file: Optional[str] = None,
    ) -> None:
        self.cgroup = cgroup or Cgroup([])
        self.apart: Optional[int] = None  # a process group below this process that is not the job's
        self._cpus = cpus
        self._watched_bytes = None if self.cgroup.memory_limited else memory_bytes
        self._own_count = 0
        self._killed: Optional[int] = None  # the last process that was, until it is gone
        self._next_check_s = 0.0
        self._own_file = None if self._watched_bytes is None else oom_file
        self.oom_file: Optional[str] = self._own_file or self.cgroup.oom_file or oom_file
        self._write_count()

    def enter(self) -> None:
        """Called in a new process of the job, before it becomes the job's program."""
        self.cgroup.enter()
        if self._cpus:
            os.sched_setaffinity(0, self._cpus)
        if self._watched_bytes is not None:
            # It counts what is reserved, which may be far more than what is used (stacks of threads): so it stops only
            # who asks for much too much at once; all else is seen by `check_memory`.
            ceiling = 2 * self._watched_bytes
            hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
            allowed = ceiling if hard == resource.RLIM_INFINITY else min(ceiling, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))

    def entry_command(self) -> Optional[str]:
        """What a new shell does instead of `enter`; empty: nothing. None: a shell cannot do it."""
        if self._watched_bytes is not None or (self._cpus and set(self._cpus) != os.sched_getaffinity(0)):
            return None
        return self.cgroup.entry_command()

    def members(self) -> Set[int]:
        """All that run for the job. A zombie counts: its parent has yet to ask for its end."""
        found = (self.cgroup.members() | own_descendants()) - {os.getpid()}
        if found and self.apart is not None:
            there = ((pid, stat(pid)) for pid in found)
            found = {pid for pid, member in there if member is not None and member.group != self.apart}
        return found

    def kill(self, pids: Set[int]) -> None:
        """SIGKILL to all that are in here."""
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
        """When `check_memory` is due, on the monotonic clock; None: never, the kernel does it."""
        return None if self._watched_bytes is None else self._next_check_s

    def check_memory(self) -> None:
        """Do what the kernel would: over the limit, the largest process is killed, and counted."""
        now_s = time.monotonic()
        if self._watched_bytes is None or now_s < self._next_check_s:
            return
        self._next_check_s = now_s + CHECK_S
        there = ((pid, stat(pid)) for pid in living(self.members()))
        sizes = {pid: member.resident_bytes for pid, member in there if member is not None}
        if self._killed in sizes:  # it frees its memory only when it gets to run
            return
        self._killed = None
        if sizes and self._held_bytes(sizes.values()) > self._watched_bytes:
            self._own_count += 1
            self._write_count()
            self._killed = max(sizes, key=lambda pid: sizes[pid])
            send_signal([self._killed], signal.SIGKILL)

    def _held_bytes(self, sizes: Iterable[int]) -> int:
        """What counts against the limit. `sizes`: of each process; what they share is in there once for each."""
        return sum(sizes)

    def _write_count(self) -> None:
        if self._own_file is None:
            return
        try:
            with open(self._own_file, "w") as file:
                file.write("oom_kill %d\n" % self._own_count)
        except OSError:
            pass  # the disk is full or the folder gone; `oom_kills` goes by the count in memory then


class PodSandbox(Sandbox):
    """Memory counts once, however many processes share it: by the container's own counter where it can be read."""

    def __init__(self, memory_bytes: Optional[int], oom_file: Optional[str], groups: str) -> None:
        super().__init__(None, None, memory_bytes, oom_file)
        self._container = Cgroup([])
        self._container.count(groups)

    def _held_bytes(self, sizes: Iterable[int]) -> int:
        held = self._container.memory_bytes()
        return sum(sizes) if held is None else held


def pod_sandbox(memory_bytes: Optional[int], own_file: str, groups: str = GROUPS) -> Sandbox:
    """`own_file`: where the count of kills is kept when it is this agent that does them."""
    try:
        all_at_once = read_proc(os.path.join(groups, "memory.oom.group")).strip() == b"1"
    except OSError:
        all_at_once = False
    if memory_bytes and all_at_once:
        return PodSandbox(int(memory_bytes * _SHARE), own_file, groups)
    return Sandbox(oom_file=oom_file(groups))


def oom_file(groups: str = GROUPS) -> Optional[str]:
    """The kernel's file with a line `oom_kill N` for this container."""
    return next(filter(os.path.exists, (os.path.join(groups, name) for name in OOM_FILES)), None)
