"""CPU time and peak memory of a kernel and its children over exactly the window of one cell."""

import os
import shutil
import subprocess
from typing import Dict, List, Optional, Tuple

from ..steps.probe import nvidia_smi_scope

TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
GPU_QUERY_S = 10.0


class Usage:
    """Follows one process tree. `begin`, then `sample` now and then, then `end`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._gpu = shutil.which("nvidia-smi")
        self._scope = nvidia_smi_scope(os.environ)
        self._exact = False
        self._peak = 0
        self._gpu_peak: Optional[int] = None
        self._gpu_source: Optional[str] = None
        self._cpu: Dict[int, float] = {}

    def begin(self) -> None:
        """From now on. The kernel's own high-water mark starts anew where the system lets us say so."""
        try:
            with open("/proc/%d/clear_refs" % self.pid, "w") as control:
                control.write("5")
            self._exact = True
        except OSError:
            self._exact = False
        self._peak, self._gpu_peak, self._gpu_source = 0, None, None
        self._cpu = _cpu_s([self.pid, *children(self.pid)])

    def sample(self) -> None:
        """Children and the kernel together, now."""
        pids = [self.pid, *children(self.pid)]
        self._peak = max(self._peak, sum(_resident_bytes(pid) for pid in pids))

    def sample_gpu(self) -> None:
        if self._gpu is None or self._scope is None:
            return
        used, source = gpu_memory([self._gpu, *self._scope], [self.pid, *children(self.pid)])
        if used is not None and used >= (self._gpu_peak or 0):
            self._gpu_peak, self._gpu_source = used, source

    @property
    def has_gpu(self) -> bool:
        return self._gpu is not None and self._scope is not None

    @property
    def peak_bytes(self) -> int:
        return self._peak

    def end(self) -> Dict[str, object]:
        """What the window came to; metrics that could not be had are None."""
        if self._exact:
            self._peak = max(self._peak, _high_water_bytes(self.pid))
        self.sample()
        after = _cpu_s([self.pid, *children(self.pid)])
        used_s = sum(cpu_s - self._cpu.get(pid, 0.0) for pid, cpu_s in after.items())
        return {
            "cpu_s": round(max(0.0, used_s), 3) if after else None,
            "peak_memory_bytes": self._peak or None,
            "gpu_peak_memory_bytes": self._gpu_peak,
            "gpu_memory_source": self._gpu_source,
        }


def children(pid: int) -> List[int]:
    """All descendants of a process that are there now."""
    found: List[int] = []
    for parent in [pid]:
        found.extend(_children(parent))
    for child in found:  # grows while it is gone through
        found.extend(grandchild for grandchild in _children(child) if grandchild not in found)
    return found


def _children(pid: int) -> List[int]:
    found: List[int] = []
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task)) as file:
                found.extend(int(child) for child in file.read().split())
    except OSError:  # it has just ended, or this kernel keeps no such list
        pass
    return found


def _cpu_s(pids: List[int]) -> Dict[int, float]:
    """CPU seconds of each process, those of children that it has already waited for included."""
    found: Dict[int, float] = {}
    for pid in pids:
        try:
            with open("/proc/%d/stat" % pid) as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        found[pid] = sum(int(ticks) for ticks in fields[11:15]) / TICKS
    return found


def _resident_bytes(pid: int) -> int:
    try:
        with open("/proc/%d/statm" % pid) as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _high_water_bytes(pid: int) -> int:
    try:
        with open("/proc/%d/status" % pid) as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def gpu_memory(nvidia_smi: List[str], pids: List[int]) -> Tuple[Optional[int], Optional[str]]:
    """GPU memory of these processes; of the whole devices where nvidia-smi does not know them (in a container)."""
    ours = [int(used) for pid, used in _query(nvidia_smi, "--query-compute-apps=pid,used_memory") if int(pid) in pids]
    if ours:
        return sum(ours) << 20, "process"
    devices = [int(used) for _, used in _query(nvidia_smi, "--query-gpu=index,memory.used")]
    return (sum(devices) << 20, "device") if devices else (None, None)


def _query(nvidia_smi: List[str], query: str) -> List[Tuple[str, str]]:
    try:
        done = subprocess.run(
            [*nvidia_smi, query, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GPU_QUERY_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [line.split(",") for line in done.stdout.decode("utf-8", "replace").splitlines()]
    pairs = [(row[0].strip(), row[1].strip()) for row in rows if len(row) == 2]
    return [(first, used) for first, used in pairs if first.isdigit() and used.isdigit()]


def oom_kills(path: Optional[str]) -> int:
    """The counter of the memory group that the job is in; 0 where there is none."""
    if path is None:
        return 0
    try:
        with open(path) as file:
            for line in file:
                word, _, count = line.partition(" ")
                if word == "oom_kill":
                    return int(count)
    except (OSError, ValueError):
        pass
    return 0
