"""Measures the hardware and the resource usage of a job from the kernel's files, without starting a process."""

from __future__ import annotations

import contextlib
import glob
import math
import os
import resource
import shutil
import signal
import subprocess
import time
from functools import lru_cache
from typing import Any, Dict, List, Optional, Set

from ..contain.process import stat
from ..contain.sandbox import Sandbox
from ..steps.probe import nvidia_smi_scope

CPU_FILE = "/proc/cpuinfo"
MEMORY_FILE = "/proc/meminfo"
GPU_FILES = "/proc/driver/nvidia/gpus/*/information"
# Keys of the processor name: x86 first, then those of ARM, POWER and others. The first one found is used.
CPU_NAMES = ("model name", "Model", "cpu", "Hardware", "CPU part")
MOST_GPUS = 64
TPU_FILES = "/dev/accel[0-9]*"
# The first variable that is set wins.
TPU_VARIABLES = (("type", "TPU_ACCELERATOR_TYPE"), ("type", "TORCHPRIME_TPU_TYPE"), ("topology", "TPU_TOPOLOGY"))


def hardware(
    cpus: Optional[List[int]] = None, memory_bytes: Optional[int] = None, gpus: Optional[str] = None
) -> Dict[str, Any]:
    """Describes the hardware. `cpus`, `memory_bytes` and `gpus` (as in CUDA_VISIBLE_DEVICES) are the job's limits, if
    they are lower than what this process sees."""
    cpu = _lasting_fields(CPU_FILE)
    model = next((cpu[name] for name in CPU_NAMES if cpu.get(name)), "")
    total = _lasting_fields(MEMORY_FILE).get("MemTotal", "").split()
    # In bus order, which is the driver's numbering.
    gpus_here = [_fields(path) for path in sorted(glob.glob(GPU_FILES))[:MOST_GPUS]]
    if gpus is not None:
        names = [name.strip() for name in gpus.split(",")]
        gpus_here = [gpu for index, gpu in enumerate(gpus_here) if str(index) in names or gpu.get("GPU UUID") in names]
    # TPU type (v5litepod-16), topology of the slice (4x4) and number of local chips.
    named = {field: os.environ[name] for field, name in reversed(TPU_VARIABLES) if os.environ.get(name)}
    chips = len(glob.glob(TPU_FILES))
    tpu = {"tpu": dict(named, chips=chips)} if named or chips else {}
    return {
        "cpu": " ".join(model.split()) or os.uname().machine,
        "cores": len(cpus) if cpus else len(os.sched_getaffinity(0)),
        "memory_bytes": memory_bytes or (int(total[0]) * 1024 if total and total[0].isdigit() else None),
        "gpu": [gpu["Model"] for gpu in gpus_here if gpu.get("Model")],
        **tpu,
    }


def _fields(path: str) -> Dict[str, str]:
    """Returns the first value of each `name : value` line; empty if the file does not exist."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return {}
    parts = [line.partition(":") for line in reversed(text.splitlines())]
    return {name.strip(): value.strip() for name, colon, value in parts if colon}


# For files that do not change while the machine runs; a zygote's children inherit the cache.
_lasting_fields = lru_cache(maxsize=None)(_fields)


# Resource usage of a step, measured from its start to its end: memory, CPU time, GPUs.


_FIRST_S = 0.1
_EVERY_S = 0.5
THIN_AFTER = 600  # samples, after which the interval doubles to limit the records of a long job
GPU_QUERY = ["--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits"]
GPU_ANSWER_BYTES = 1 << 16


class Meter:
    """CPU time counts all reaped and running processes; memory counts what they use now."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._reaped_s = 0.0
        self._taken = 0
        self._every_s = _EVERY_S
        self.due_s = 0.0
        self._begin_cpu_s = 0.0
        self._peak_bytes = 0

    def reaped(self, usage: "resource.struct_rusage") -> None:
        self._reaped_s += usage.ru_utime + usage.ru_stime

    def begin(self, there: Set[int]) -> None:
        """Starts the measurement of a step; `there` are the processes that already run."""
        self._begin_cpu_s = self._cpu_s(there)
        self._peak_bytes = 0
        self._sandbox.cgroup.forget_highest()
        self.due_s = time.monotonic() + _FIRST_S

    def sample(self) -> Dict[str, Any]:
        """Samples the current step."""
        memory_bytes = self._sandbox.memory_bytes()
        self._peak_bytes = max(self._peak_bytes, memory_bytes)
        self._taken += 1
        if self._taken % THIN_AFTER == 0:
            self._every_s *= 2
        self.due_s = time.monotonic() + self._every_s
        cpu_s = round(max(0.0, self._cpu_s(self._sandbox.members()) - self._begin_cpu_s), 6)
        return {"memory_bytes": memory_bytes, "cpu_s": cpu_s}

    def peak_bytes(self, largest_process_bytes: int) -> int:
        """Returns the highest sampled memory, or the peak of a single process if that is higher. The kernel's process
        peak includes memory from before exec, so it is capped by what was charged to the job."""
        highest_bytes = self._sandbox.cgroup.highest_bytes()
        if highest_bytes is not None:
            largest_process_bytes = min(largest_process_bytes, highest_bytes)
        return max(self._peak_bytes, largest_process_bytes)

    def _cpu_s(self, there: Set[int]) -> float:
        return self._reaped_s + sum(member.cpu_s for member in map(stat, there) if member is not None)


class GpuQuery:
    """Queries nvidia-smi without blocking; the runner reads its answer from a pipe."""

    def __init__(self, env: Dict[str, str]) -> None:
        self._scope = nvidia_smi_scope(env)
        # An absolute path after the first search; most jobs end before.
        self._program: Optional[str] = "nvidia-smi" if self._scope is not None else None
        self._env = env
        self.pid: Optional[int] = None
        self._answer = b""

    def ask(self) -> Optional[int]:
        """Returns the pipe to read; None if there is no GPU, or a query is still running."""
        if self._program is None or self.pid is not None:
            return None
        self._program = shutil.which(self._program, path=self._env.get("PATH", os.defpath))
        if self._program is None:
            return None
        argv, none = [self._program, *(self._scope or []), *GPU_QUERY], subprocess.DEVNULL
        reader, writer = os.pipe()
        try:
            query = subprocess.Popen(
                argv, env=self._env, stdin=none, stdout=writer, stderr=none, start_new_session=True
            )
        except OSError:
            self._program = None
            os.close(reader)
            return None
        finally:
            os.close(writer)
        query.returncode = 0  # the runner reaps it
        self.pid, self._answer = query.pid, b""
        return reader

    def take(self, data: bytes) -> None:
        self._answer += data
        if len(self._answer) > GPU_ANSWER_BYTES:  # not the expected output
            self._answer, self._program = b"", None
            self.stop()

    def stop(self) -> None:
        """Kills a running query: nvidia-smi may hang when the driver does."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def answer(self) -> List[Dict[str, Any]]:
        """Returns one entry per GPU; unsupported metrics ("[N/A]") are None."""
        found = []
        for line in self._answer.decode("utf-8", "replace").splitlines():
            fields = [field.strip() for field in line.split(",")]
            if len(fields) == 3 and fields[0].isdecimal() and len(fields[0]) < 5:
                utilization, used_mib = _number(fields[1]), _number(fields[2])
                used = None if used_mib is None else int(used_mib * (1 << 20))
                found.append({"index": int(fields[0]), "utilization": utilization, "memory_bytes": used})
        return found


def _number(text: str) -> Optional[float]:
    try:
        return float(text) if math.isfinite(float(text)) else None
    except ValueError:
        return None
