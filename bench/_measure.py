"""CPU time of a command and of everything that it starts, also of what detaches itself from it; and the two sizes of a
bench: in full, and tiny with SEATRIAL_BENCH_TINY=1, which only shows that it still works (tests/test_bench.py)."""

import ctypes
import fcntl
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "bench"
SEATRIAL = Path(sys.executable).with_name("seatrial")
PR_SET_CHILD_SUBREAPER = 36
TINY = bool(os.environ.get("SEATRIAL_BENCH_TINY"))
_T = TypeVar("_T")


def sized(full: _T, tiny: _T) -> _T:
    return tiny if TINY else full


def left_out(why: str) -> NoReturn:
    """Ends a bench that cannot be run here, without failing."""
    print(f"left out: {why}")
    raise SystemExit(0)


def cpu_of(argv: Sequence[str | Path], **options: object) -> tuple[float, float, int]:
    """(CPU seconds, wall seconds, exit code). What outlives its parent becomes ours, is waited for and counted."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    process = subprocess.Popen([str(part) for part in argv], stdout=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    code: int = process.wait()
    wall = time.monotonic() - began
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall, code


def cpu_of_one(argv: Sequence[str | Path], **options: object) -> tuple[float, float, int]:
    """The same of a command that leaves nothing behind, beside processes of ours that do not end, as of a cluster."""
    began = time.monotonic()
    process = subprocess.Popen([str(part) for part in argv], stdout=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime, time.monotonic() - began, process.returncode


@contextmanager
def cache_lock() -> Iterator[None]:
    """Held while something is put into the cache: benches may run at the same time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def environment(name: str, *packages: str) -> Path:
    """The Python of an environment that has these packages: the peers, kept apart from Seatrial's own."""
    python, complete = CACHE / name / "bin" / "python", CACHE / f"{name}.complete"
    with cache_lock():
        if not complete.exists():
            uv = Path(sys.executable).with_name("uv")
            subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, CACHE / name], check=True)
            subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *packages], check=True)
            complete.touch()
    return python


def table(title: str, rows: Sequence[tuple[str, str]]) -> None:
    print(title)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"  {name:<{width}}  {value}")
