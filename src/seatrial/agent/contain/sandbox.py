"""What holds a job's processes: its control groups, its CPUs, its memory; and who is in there."""

from __future__ import annotations

import os
import resource
import signal
import time
from typing import Iterable, List, Optional, Set

from .cgroup import Cgroup
from .process import descendants, read, send, stat

LOOK_S = 0.05  # how often memory is looked at where the kernel does not limit it


class Box:
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
        self._next_look_s = 0.0
        if self._watched_bytes is not None and oom_file is not None:
            self._own_file: Optional[str] = oom_file
            self.oom_file: Optional[str] = oom_file
            self._write_count()
        else:
            self._own_file = None
            self.oom_file = self.cgroup.oom_file or oom_file

    def enter(self) -> None:
        """Called in a new process of the job, before it becomes the job's program."""
        self.cgroup.enter()
        if self._cpus:
            os.sched_setaffinity(0, self._cpus)
        if self._watched_bytes is not None:
            # It counts what is reserved, which may be far more than what is used (stacks of threads): so it stops only
            # who asks for much too much at once; all else is seen by `look`.
            ceiling = 2 * self._watched_bytes
            hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
            allowed = ceiling if hard == resource.RLIM_INFINITY else min(ceiling, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))

    def members(self) -> Set[int]:
        """All that run for the job. A zombie counts: somebody has yet to be told of its end."""
        found = (self.cgroup.members() | descendants(os.getpid())) - {os.getpid()}
        if found and self.apart is not None:
            found = {pid for pid in found for seen in [stat(pid)] if seen is not None and seen.group != self.apart}
        return found

    def kill(self, pids: Set[int]) -> None:
        """SIGKILL to all that are in here."""
        self.cgroup.kill()
        send(pids, signal.SIGKILL)

    def oom_kills(self) -> int:
        if self.oom_file is None:
            return 0
        try:
            for line in read(self.oom_file).splitlines():
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
        except (OSError, ValueError):
            pass
        return self._own_count

    def memory_bytes(self) -> int:
        counted = self.cgroup.memory_bytes()
        if counted is not None:
            return counted
        return sum(seen.resident_bytes for seen in map(stat, self.members()) if seen is not None)

    def next_look_s(self) -> Optional[float]:
        """When `look` is due, on the monotonic clock; None: never, the kernel does it."""
        return None if self._watched_bytes is None else self._next_look_s

    def look(self) -> None:
        """Do what the kernel would: over the limit, the largest process is killed, and counted."""
        now_s = time.monotonic()
        if self._watched_bytes is None or now_s < self._next_look_s:
            return
        self._next_look_s = now_s + LOOK_S
        sizes = {pid: seen.resident_bytes for pid in self.members() for seen in [stat(pid)] if seen is not None}
        if sizes and self._held_bytes(sizes.values()) > self._watched_bytes:
            self._own_count += 1
            self._write_count()
            send([max(sizes, key=lambda pid: sizes[pid])], signal.SIGKILL)

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
