"""What holds the steps inside a pod: the container's own limits, which the kernel keeps; and who is in there.

Where the kernel, out of memory, ends all of a container at once (`memory.oom.group`, as kubelets set it on version 2
of control groups), this agent would go too, and with it what only it can tell. There memory is watched from here, a
little below the limit, so that the step dies and the agent lives.
"""

from __future__ import annotations

import os
from typing import Iterable, Optional

from .cgroup import Cgroup
from .process import read
from .sandbox import Box

GROUPS = "/sys/fs/cgroup"
OOM_FILES = ("memory.events", "memory/memory.oom_control")
SHARE = 0.95


class PodBox(Box):
    """Memory counts once, however many processes share it: by the container's own counter where it can be read."""

    def __init__(self, memory_bytes: Optional[int], oom_file: Optional[str], groups: str) -> None:
        super().__init__(None, None, memory_bytes, oom_file)
        self._container = Cgroup([])
        self._container.count(groups)

    def _held_bytes(self, sizes: Iterable[int]) -> int:
        held = self._container.memory_bytes()
        return sum(sizes) if held is None else held


def pod_box(memory_bytes: Optional[int], own_file: str, groups: str = GROUPS) -> Box:
    """`own_file`: where the count of kills is kept when it is this agent that does them."""
    if memory_bytes and _all_at_once(groups):
        return PodBox(int(memory_bytes * SHARE), own_file, groups)
    return Box(oom_file=oom_file(groups))


def oom_file(groups: str = GROUPS) -> Optional[str]:
    """The kernel's file with a line `oom_kill N` for this container."""
    return next((path for name in OOM_FILES for path in [os.path.join(groups, name)] if os.path.exists(path)), None)


def _all_at_once(groups: str) -> bool:
    try:
        return read(os.path.join(groups, "memory.oom.group")).strip() == b"1"
    except OSError:
        return False
