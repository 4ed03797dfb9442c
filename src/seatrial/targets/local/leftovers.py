"""Finds and kills processes and containers of a job whose supervisor was killed or whose folder is gone.

They are found by the job's control groups, by container label, by a variable in their environment, and by a working
folder, executable or file opened for writing inside the job's folder. A process that sheds all of these is found only
while its supervisor lives.
"""

import asyncio
import contextlib
import os
import signal
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from seatrial.job.reading import process_fields
from seatrial.targets.local.containers import container_name, labelled_containers, remove_container
from seatrial.targets.protocol import TargetError

_MARK = b"SEATRIAL_FILES="  # followed by a path in the job's folder, which is unique
DELETED = " (deleted)"  # suffix of the kernel for paths that no longer exist


class Trace(NamedTuple):
    """A process of a job, and the path in the job's folder that identifies it."""

    pid: int
    path: str
    name: str
    at_terminal: bool  # may be a user inspecting the job: never killed


def _below(folder: str) -> Iterator[Trace]:
    """Processes of the job, or jobs, in this folder, which may no longer exist."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        pid = int(entry)
        if pid == os.getpid():
            continue
        with contextlib.suppress(OSError):  # exited, or another user's
            marked = _mark(pid, folder)
            path = marked or next((path for path in _paths(pid) if path.startswith(f"{folder}/")), "")
            if path and (fields := process_fields(pid)):
                yield Trace(pid, path, _name(pid), not marked and fields[4] != b"0")


def _mark(pid: int, folder: str) -> str:
    """The path in the process's mark, if it is below this folder."""
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    wanted = _MARK + os.fsencode(folder) + b"/"
    if wanted not in environment:
        return ""
    return next((os.fsdecode(line[len(_MARK) :]) for line in environment.split(b"\0") if line.startswith(wanted)), "")


def _paths(pid: int) -> Iterator[str]:
    """Its working folder, root, executable and files open for writing. Processes that only read are not the job's: a
    backup, a log shipper."""
    for name in ("cwd", "root", "exe"):
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/{pid}/{name}").removesuffix(DELETED)
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            path = os.readlink(f"/proc/{pid}/fd/{number}")
            if path.startswith("/") and not path.startswith("/dev/"):
                info = Path(f"/proc/{pid}/fdinfo/{number}").read_text()
                if int(info.partition("flags:")[2].split()[0], 8) & os.O_ACCMODE != os.O_RDONLY:
                    yield path.removesuffix(DELETED)


def _name(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return " ".join(os.fsdecode(word) for word in words if word).encode("utf-8", "replace").decode()[:100]


_END_S = 30.0
CGROUPS = Path("/sys/fs/cgroup")


def end_leftovers(job: Path, cgroups: Iterable[str]) -> int:
    """Kills all processes of the job in this folder and returns how many there were. Blocks. Leaves processes with a
    terminal: they may be a user inspecting the job. Raises TargetError."""
    folders = [Path(folder) for folder in cgroups]
    seen: set[int] = set()
    until_s = time.monotonic() + _END_S
    while there := _members(folders) | {trace.pid for trace in _below(str(job)) if not trace.at_terminal}:
        seen |= there
        for folder in folders:
            _write(folder / "cgroup.kill", "1")
            _write(folder / "pids.max", "0")
        for pid in there:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until_s:
            pids = ", ".join(map(str, sorted(there)))
            raise TargetError(f"processes of {job.name} still running after SIGKILL: {pids}")
        time.sleep(0.02)
    for folder in folders:
        _remove_group(folder)
    return len(seen)


def at_terminals(job: Path) -> str:
    """A message about processes that were left running because a user may be at their terminal; else ""."""
    found = [f"{trace.pid} ({trace.name})" for trace in _below(str(job)) if trace.at_terminal]
    return f"left running, because they use a terminal in the job's folder: {', '.join(found)}" if found else ""


def end_unsupervised(job: Path) -> int:
    """Like `end_leftovers`, for a job whose control groups are unknown."""
    # Named as in `agent/contain/cgroup.py`. os.walk tolerates folders that vanish meanwhile.
    wanted = f"seatrial-{job.name[:200]}-{zlib.crc32(str(job).encode()):08x}"
    return end_leftovers(job, [os.path.join(at, wanted) for at, names, _ in os.walk(CGROUPS) if wanted in names])


def _members(folders: Iterable[Path]) -> set[int]:
    found: set[int] = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            found.update(map(int, (folder / "cgroup.procs").read_text().split()))
    return set(filter(process_fields, found))  # without zombies and processes that have exited


def _remove_group(folder: Path) -> None:
    for _ in range(500):
        with contextlib.suppress(OSError):
            folder.rmdir()
        if not folder.exists():
            return
        time.sleep(0.02)  # the kernel keeps a process in the group a little after its end


def _write(path: Path, text: str) -> None:
    with contextlib.suppress(OSError), open(path, "r+") as file:
        file.write(text)


async def strays(jobs: Path) -> set[Path]:
    """Deleted job folders below `jobs` that still have processes or containers."""
    traces = await asyncio.to_thread(lambda: list(_below(str(jobs))))
    below = [Path(trace.path).relative_to(jobs).parts for trace in traces]
    found = {jobs / parts[0] / parts[1] for parts in below if len(parts) > 1}
    for _, name, run, job in await labelled_containers():
        if name == container_name(jobs / run / job):
            found.add(jobs / run / job)
    return {folder for folder in found if not folder.exists()}


async def remove_stray(folder: Path) -> None:
    """Removes all processes and containers of a job without a folder. Raises TargetError."""
    await asyncio.to_thread(end_unsupervised, folder)
    if left := await asyncio.to_thread(at_terminals, folder):
        raise TargetError(left)
    for engine, name, _, _ in await labelled_containers():
        if name == container_name(folder):
            await remove_container(engine, name)
