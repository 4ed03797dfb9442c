"""Finds and ends what a job leaves behind when its supervisor was killed, or when its folder is gone: by its control
groups, by the label of its container, and by what its processes still have of it: its mark in their environment, its
folder as where they are or what they run from, a file in it that they write. A job that wants to can take all of that
from a process, which is then found only as long as its supervisor lives, from which no child gets away."""

import asyncio
import contextlib
import os
import signal
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from seatrial.targets.local.containers import container_name, labelled_containers, remove_container
from seatrial.targets.protocol import TargetError

_MARK = b"SEATRIAL_FILES="  # and the folder of a job, for that is only one
DELETED = " (deleted)"  # what the kernel says behind the path of what is not there any more


class Trace(NamedTuple):
    """A process, and the path below the folder of jobs by which it is known."""

    pid: int
    path: str
    name: str
    at_terminal: bool  # it may be a person who looks at the job: not to be ended unasked


def _below(folder: str) -> Iterator[Trace]:
    """Those of the job, or of the jobs, in this folder, which may not be there any more."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        pid = int(entry)
        if pid == os.getpid():
            continue
        with contextlib.suppress(OSError):  # gone, or another user's: then it is not ours
            marked = _mark(pid, folder)
            path = marked or next((path for path in _paths(pid) if path.startswith(f"{folder}/")), "")
            fields = _fields(pid) if path else []
            if fields and fields[0] not in (b"Z", b"X"):
                yield Trace(pid, path, _name(pid), not marked and fields[4] != b"0")


def _mark(pid: int, folder: str) -> str:
    """The path in the mark that it was started with, if that is of this folder."""
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    wanted = _MARK + os.fsencode(folder) + b"/"
    if wanted not in environment:
        return ""
    return next((os.fsdecode(line[len(_MARK) :]) for line in environment.split(b"\0") if line.startswith(wanted)), "")


def _paths(pid: int) -> Iterator[str]:
    """Where it is, what it runs from, and what it has open to write. Who only reads is somebody else: a backup, a
    shipper of logs."""
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


def _fields(pid: int) -> list[bytes]:
    """Of its stat, from the state on; none when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def _name(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return " ".join(os.fsdecode(word) for word in words if word).encode("utf-8", "replace").decode()[:100]


_END_S = 30.0
CGROUPS = Path("/sys/fs/cgroup")


def end_leftovers(job: Path, cgroups: Iterable[str]) -> int:
    """Returns when nothing of the job in this folder runs any more, with how many processes there were. Blocks. What
    is at a terminal is left: it may be a person who looks at the job."""
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
            raise TargetError(f"processes of {job.name} that SIGKILL does not end: {pids}")
        time.sleep(0.02)
    for folder in folders:
        _remove_group(folder)
    return len(seen)


def at_terminals(job: Path) -> str:
    """Processes that were not ended, in words, for there may be a person before them; else nothing."""
    found = [f"{trace.pid} ({trace.name})" for trace in _below(str(job)) if trace.at_terminal]
    return f"left, for they are at a terminal and in its folder: {', '.join(found)}" if found else ""


def end_unsupervised(job: Path) -> int:
    """The same where nothing says any more which control groups it had."""
    # Named as in `agent/contain/cgroup.py`. os.walk minds no folder that goes meanwhile.
    wanted = f"seatrial-{job.name[:200]}-{zlib.crc32(str(job).encode()):08x}"
    return end_leftovers(job, [os.path.join(at, wanted) for at, names, _ in os.walk(CGROUPS) if wanted in names])


def _members(folders: Iterable[Path]) -> set[int]:
    found: set[int] = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            found.update(map(int, (folder / "cgroup.procs").read_text().split()))
    # Not those that are gone, or only wait for their parent to ask how they ended.
    return {pid for pid in found if _fields(pid)[:1] not in ([], [b"Z"], [b"X"])}


def _remove_group(folder: Path) -> None:
    for _ in range(500):
        with contextlib.suppress(OSError):
            folder.rmdir()
        if not folder.exists():
            return
        time.sleep(0.02)  # the kernel counts a process as a member a little longer than it lives


def _write(path: Path, text: str) -> None:
    with contextlib.suppress(OSError), open(path, "r+") as file:
        file.write(text)


async def strays(jobs: Path) -> set[Path]:
    """Folders, not there any more, of jobs of which processes or containers still are. `jobs`: where they would be."""
    traces = await asyncio.to_thread(lambda: list(_below(str(jobs))))
    below = [Path(trace.path).relative_to(jobs).parts for trace in traces]
    found = {jobs / parts[0] / parts[1] for parts in below if len(parts) > 1}
    for _, name, run, job in await labelled_containers():
        if name == container_name(jobs / run / job):
            found.add(jobs / run / job)
    return {folder for folder in found if not folder.exists()}


async def remove_stray(folder: Path) -> None:
    """Nothing of that job is there any more afterwards."""
    await asyncio.to_thread(end_unsupervised, folder)
    if left := await asyncio.to_thread(at_terminals, folder):
        raise TargetError(left)
    for engine, name, _, _ in await labelled_containers():
        if name == container_name(folder):
            await remove_container(engine, name)
