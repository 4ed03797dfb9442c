"""What still carries the mark of a job whose folder is gone: found by that alone, for `reap`."""

import asyncio
import os
import shutil
from pathlib import Path

from seatrial.target.local.containers import ENGINES, container_name, labelled_containers, remove_container
from seatrial.target.local.leftovers import end_leftovers, process_environments

CGROUPS = Path("/sys/fs/cgroup")


async def strays(jobs: Path) -> set[Path]:
    """Folders, not there any more, of jobs of which processes or containers still are. `jobs`: where they would be."""
    found = await asyncio.to_thread(_of_processes, jobs)
    for engine in filter(None, map(shutil.which, ENGINES)):
        for name, run, job in await labelled_containers(engine):
            folder = jobs / run / job
            if name == container_name(folder):
                found.add(folder)
    return {folder for folder in found if not folder.exists()}


async def remove_stray(folder: Path) -> None:
    """Nothing of that job is there any more afterwards."""
    groups = await asyncio.to_thread(_groups, folder.name)
    await asyncio.to_thread(end_leftovers, folder, groups)
    for engine in filter(None, map(shutil.which, ENGINES)):
        if any(name == container_name(folder) for name, _, _ in await labelled_containers(engine)):
            await remove_container(engine, container_name(folder))


def _groups(job: str) -> list[str]:
    """os.walk minds no folder that goes while it looks: those of other jobs do."""
    below = (os.path.join(at, name) for at, names, _ in os.walk(CGROUPS) for name in names)
    return [path for path in below if os.path.basename(path).startswith(f"seatrial-{job}-")]


def _of_processes(jobs: Path) -> set[Path]:
    mark = f"SEATRIAL_FILES={jobs}/".encode()
    return {
        Path(os.fsdecode(line.removeprefix(b"SEATRIAL_FILES="))).parent
        for _, environment in process_environments()
        if mark in environment
        for line in environment.split(b"\0")
        if line.startswith(mark)
    }
