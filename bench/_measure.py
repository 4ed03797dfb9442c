"""CPU time of a command and of everything that it starts, also of what detaches itself from it; and the two sizes of a
bench: in full, and tiny with SEATRIAL_BENCH_TINY=1, which only shows that it still works (tests/test_bench.py)."""

import ctypes
import fcntl
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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


def whole_of(argv: Sequence[str | Path], **options: object) -> tuple[float, float, int]:
    """(CPU seconds, wall seconds, most bytes) of a command and of all that it starts, measured by a process of its own.
    Bytes are resident in all of these processes at once; shared ones count in each."""
    command = [sys.executable, __file__, *(str(part) for part in argv)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, **options)  # type: ignore[call-overload]
    cpu_s, wall_s, most_bytes = json.loads(done.stdout)
    return cpu_s, wall_s, most_bytes


def _resident_bytes() -> int:
    """Of all processes that this one started, and of theirs."""
    parents, pages = dict[int, int](), dict[int, int]()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            pages[int(entry.name)] = int((entry / "statm").read_text().split()[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sum(pages.get(pid, 0) for pid in found - {os.getpid()}) * os.sysconf("SC_PAGE_SIZE")


def _measure_whole(argv: Sequence[str]) -> None:
    most, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            most.append(_resident_bytes())

    looking = threading.Thread(target=look)
    looking.start()
    cpu_s, wall_s, _ = cpu_of(argv)  # on a busy machine a trial may be invalid
    over.set()
    looking.join()
    print(json.dumps([cpu_s, wall_s, max(most)]))


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


if __name__ == "__main__":
    _measure_whole(sys.argv[1:])
