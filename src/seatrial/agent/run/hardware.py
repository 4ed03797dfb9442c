"""What a job runs on, for its figures' fingerprint: read from the kernel's files, no process is started for it."""

from __future__ import annotations

import glob
import os
from functools import lru_cache
from typing import Any, Dict, List, Optional

CPU_FILE = "/proc/cpuinfo"
MEMORY_FILE = "/proc/meminfo"
GPU_FILES = "/proc/driver/nvidia/gpus/*/information"
# The first of these that is there names the processor: x86, then what ARM, POWER and others write instead.
CPU_NAMES = ("model name", "Model", "cpu", "Hardware", "CPU part")
MOST_GPUS = 64
TPU_FILES = "/dev/accel[0-9]*"
TPU_VARIABLES = {
    "type": ("TPU_ACCELERATOR_TYPE", "TORCHPRIME_TPU_TYPE"),
    "topology": ("TPU_TOPOLOGY",),
}


def hardware(
    cpus: Optional[List[int]] = None, memory_bytes: Optional[int] = None, gpus: Optional[str] = None
) -> Dict[str, Any]:
    """`cpus`, `memory_bytes` and `gpus` (as in CUDA_VISIBLE_DEVICES): what the job is held to, where that is less than
    what this process sees."""
    return {
        "cpu": _cpu_model(),
        "cores": len(cpus) if cpus else len(os.sched_getaffinity(0)),
        "memory_bytes": memory_bytes or _memory_bytes(),
        "gpu": _gpu_models(gpus),
        **_tpu(),
    }


def _tpu() -> Dict[str, Dict[str, Any]]:
    """What the host of a TPU says of it: its type (v5litepod-16), the topology of its slice (4x4), and the chips here.
    Nothing where there is none."""
    named = {
        field: value
        for field, names in TPU_VARIABLES.items()
        for value in [next((os.environ[name] for name in names if os.environ.get(name)), None)]
        if value
    }
    chips = len(glob.glob(TPU_FILES))
    return {"tpu": dict(named, chips=chips)} if named or chips else {}


def _fields(path: str) -> Dict[str, str]:
    """The first of each `name : value`; empty where the file is not there, as on another system."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return {}
    found: Dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


@lru_cache(maxsize=None)
def _lasting_fields(path: str) -> Dict[str, str]:
    """Of a file that says the same as long as the machine runs: read once, a zygote's children know it."""
    return _fields(path)


def _cpu_model() -> str:
    fields = _lasting_fields(CPU_FILE)
    named = next((fields[name] for name in CPU_NAMES if fields.get(name)), "")
    return " ".join(named.split()) or os.uname().machine


def _memory_bytes() -> Optional[int]:
    words = _lasting_fields(MEMORY_FILE).get("MemTotal", "").split()
    return int(words[0]) * 1024 if words and words[0].isdigit() else None


def _gpu_models(shown: Optional[str]) -> List[str]:
    """In the order of their addresses on the bus, which is how the driver counts them."""
    found = [_fields(path) for path in sorted(glob.glob(GPU_FILES))[:MOST_GPUS]]
    if shown is not None:
        names = [name.strip() for name in shown.split(",")]
        found = [gpu for index, gpu in enumerate(found) if str(index) in names or gpu.get("GPU UUID") in names]
    return [gpu["Model"] for gpu in found if gpu.get("Model")]
