"""CPU time and peak memory of a kernel and its children over exactly the window of one cell."""

import os
import re
import shutil
import subprocess
from typing import Dict, List, Optional, Tuple

from ..contain.process import Stat, descendants, read_proc, stat
from ..steps.probe import nvidia_smi_scope, run_program

GPU_QUERY_S = 10.0


class Usage:
    """Follows one process tree. `begin`, then `sample` now and then, then `end`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.peak_bytes = 0
        nvidia_smi, scope = shutil.which("nvidia-smi"), nvidia_smi_scope(os.environ)
        self.nvidia_smi = None if nvidia_smi is None or scope is None else [nvidia_smi, *scope]
        self._exact = False
        self._gpu_peak: Optional[int] = None
        self._gpu_source: Optional[str] = None
        self._before: Dict[int, Stat] = {}

    def begin(self) -> None:
        """From now on. The kernel's own high-water mark starts anew where the system lets us say so."""
        try:
            with open("/proc/%d/clear_refs" % self.pid, "w") as control:
                control.write("5")
            self._exact = True
        except OSError:
            self._exact = False
        self.peak_bytes, self._gpu_peak, self._gpu_source = 0, None, None
        self._before = self._tree()

    def sample(self) -> Dict[int, Stat]:
        """The processes that are there now."""
        tree = self._tree()
        self.peak_bytes = max(self.peak_bytes, sum(member.resident_bytes for member in tree.values()))
        return tree

    def sample_gpu(self) -> None:
        """GPU memory of these processes; of the whole devices where nvidia-smi does not know them (in a container)."""
        tree, source = self._tree(), "process"
        used = [mib for pid, mib in self._ask("--query-compute-apps=pid,used_memory") if pid in tree]
        if not used:
            used, source = [mib for _, mib in self._ask("--query-gpu=index,memory.used")], "device"
        if used and sum(used) << 20 >= (self._gpu_peak or 0):
            self._gpu_peak, self._gpu_source = sum(used) << 20, source

    def end(self) -> Dict[str, object]:
        """What the window came to; metrics that could not be had are None."""
        after = self.sample()
        if self._exact:
            try:
                high_water = re.search(rb"VmHWM:\s*(\d+)", read_proc("/proc/%d/status" % self.pid))
            except OSError:
                high_water = None
            self.peak_bytes = max(self.peak_bytes, int(high_water.group(1)) * 1024 if high_water else 0)
        used_s = sum(member.cpu_s for member in after.values())
        used_s -= sum(self._before[pid].cpu_s for pid in after if pid in self._before)
        return {
            "cpu_s": round(max(0.0, used_s), 3) if after else None,
            "peak_memory_bytes": self.peak_bytes or None,
            "gpu_peak_memory_bytes": self._gpu_peak,
            "gpu_memory_source": self._gpu_source,
        }

    def _tree(self) -> Dict[int, Stat]:
        """The kernel and all that descend from it."""
        members = ((pid, stat(pid)) for pid in (self.pid, *descendants(self.pid)))
        return {pid: member for pid, member in members if member is not None}

    def _ask(self, query: str) -> List[Tuple[int, int]]:
        argv = [*(self.nvidia_smi or ()), query, "--format=csv,noheader,nounits"]
        text = run_program(argv, GPU_QUERY_S, stderr=subprocess.DEVNULL)[1]
        return [(int(first), int(second)) for first, second in re.findall(r"^ *(\d+) *, *(\d+) *$", text, re.MULTILINE)]
