"""The GPUs of this machine: which there are, and each for one job at a time."""

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import msgspec

from seatrial.target.local.folders import JobFolder, JobSubmission
from seatrial.target.local.processes import ask
from seatrial.target.local.reservations import locked, submissions_of_others
from seatrial.target.protocol import TargetError

_LOCK = "gpus.lock"
LOOK_AGAIN_S = 0.5  # for one that a job has given back
_QUERY = ("--query-gpu=index,uuid", "--format=csv,noheader")


class LocalGpu(msgspec.Struct, frozen=True):
    index: int  # as nvidia-smi counts: by address on the bus
    uuid: str


class GpusTaken(Exception):
    """Not as many are free as the job asks for; they will be, when other jobs have ended."""


async def gpus_of_machine() -> list[LocalGpu]:
    """Those that this process may use; none where there is no nvidia-smi, which the facts of a job tell. Raises
    TargetError where it fails: a job that were started all the same would share what others have."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    code, text = await ask(program, *_QUERY)
    if code != 0:
        raise TargetError(f"the GPUs of this machine cannot be given out: {program} fails: {text}")
    return visible(parse(text), os.environ)


def parse(text: str) -> list[LocalGpu]:
    rows = [[field.strip() for field in line.split(",")] for line in text.splitlines()]
    return [LocalGpu(int(row[0]), row[1]) for row in rows if len(row) == 2 and row[0].isdigit()]


def visible(gpus: Sequence[LocalGpu], variables: Mapping[str, str]) -> list[LocalGpu]:
    """Those that CUDA_VISIBLE_DEVICES leaves, in its order; as for CUDA, what it does not know ends the list."""
    wanted = variables.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return list(gpus)
    found: list[LocalGpu] = []
    for name in (part.strip() for part in wanted.split(",")):
        named = [gpu for gpu in gpus if name == str(gpu.index) or (name.startswith("GPU-") and gpu.uuid == name)]
        if not named:
            break
        found += named
    return found


def choose_gpus(gpus: Sequence[LocalGpu], count: int, folder: JobFolder, host: str) -> list[int]:
    """So many that no other job has; all, where the machine has fewer. Raises GpusTaken. The lock is held."""
    taken = {index for submission in submissions_of_others(folder, host) for index in submission.gpus}
    free = [gpu.index for gpu in gpus if gpu.index not in taken]
    wanted = min(count, len(gpus))
    if len(free) < wanted:
        raise GpusTaken
    return free[:wanted]


def locked_gpus(folder: JobFolder) -> AbstractContextManager[None]:
    return locked(folder.path.parent.parent.parent / _LOCK)


def gpu_variables(submission: JobSubmission) -> dict[str, str]:
    """By which CUDA shows a job just its own. Numbers, since not every library reads UUIDs; in the order of nvidia-smi,
    since CUDA's own is another."""
    if not submission.gpus:
        return {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, submission.gpus)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
