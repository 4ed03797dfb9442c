"""What a job leaves behind when its supervisor was killed, or when its folder is gone: found by its control groups, by
what its processes still have of it and by the label of its container, and ended."""

import asyncio
import contextlib
import os
import shutil
import signal
import time
import zlib
from collections.abc import Iterable
from pathlib import Path

from seatrial.target.local.containers import ENGINES, container_name, labelled_containers, remove_container
from seatrial.target.local.traces import ended, jobs_traced, of_job
from seatrial.target.protocol import TargetError

_END_S = 30.0
CGROUPS = Path("/sys/fs/cgroup")


def end_leftovers(job: Path, cgroups: Iterable[str]) -> int:
    """Returns when nothing of the job in this folder runs any more, with how many processes there were. Blocks. What
    is at a terminal is left: it may be a person who looks at the job."""
    folders = [Path(folder) for folder in cgroups]
    seen: set[int] = set()
    until_s = time.monotonic() + _END_S
    while there := _members(folders) | {trace.pid for trace in of_job(job) if not trace.at_terminal}:
        seen |= there
        for folder in folders:
            _write(folder / "cgroup.kill", "1")
            _write(folder / "pids.max", "0")
        for pid in there:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until_s:
            raise TargetError(
                f"processes of {job.name} that SIGKILL does not end: {', '.join(map(str, sorted(there)))}"
            )
        time.sleep(0.02)
    for folder in folders:
        _remove_group(folder)
    return len(seen)


def at_terminals(job: Path) -> str:
    """Processes that were not ended, in words, for there may be a person before them; else nothing."""
    found = [f"{trace.pid} ({trace.name})" for trace in of_job(job) if trace.at_terminal]
    return f"left, for they are at a terminal and in its folder: {', '.join(found)}" if found else ""


def end_unsupervised(job: Path) -> int:
    """The same where nothing says any more which control groups it had."""
    return end_leftovers(job, _groups(job))


def _members(folders: Iterable[Path]) -> set[int]:
    found: set[int] = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            found.update(map(int, (folder / "cgroup.procs").read_text().split()))
    return {pid for pid in found if not ended(pid)}


def _remove_group(folder: Path) -> None:
    for _ in range(500):
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)  # the kernel counts a process as a member a little longer than it lives


def _write(path: Path, text: str) -> None:
    with contextlib.suppress(OSError), open(path, "r+") as file:
        file.write(text)


async def strays(jobs: Path) -> set[Path]:
    """Folders, not there any more, of jobs of which processes or containers still are. `jobs`: where they would be."""
    found = await asyncio.to_thread(jobs_traced, jobs)
    for engine in filter(None, map(shutil.which, ENGINES)):
        for name, run, job in await labelled_containers(engine):
            folder = jobs / run / job
            if name == container_name(folder):
                found.add(folder)
    return {folder for folder in found if not folder.exists()}


async def remove_stray(folder: Path) -> None:
    """Nothing of that job is there any more afterwards."""
    await asyncio.to_thread(end_unsupervised, folder)
    if left := await asyncio.to_thread(at_terminals, folder):
        raise TargetError(left)
    for engine in filter(None, map(shutil.which, ENGINES)):
        if any(name == container_name(folder) for name, _, _ in await labelled_containers(engine)):
            await remove_container(engine, container_name(folder))


def _groups(job: Path) -> list[str]:
    """By their name, which is as `agent/contain/cgroup.py` makes it. os.walk minds no folder that goes meanwhile."""
    wanted = f"seatrial-{job.name[:200]}-{zlib.crc32(str(job).encode()):08x}"
    return [os.path.join(at, wanted) for at, names, _ in os.walk(CGROUPS) if wanted in names]
