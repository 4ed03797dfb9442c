"""Assigns GPUs and ports to jobs of this machine, each to one job at a time."""

import contextlib
import errno
import os
import random
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from seatrial.job import Outcome
from seatrial.targets.local.folders import JobFolder, JobSubmission, try_lock
from seatrial.targets.local.programs import ask
from seatrial.targets.local.supervisors import alive
from seatrial.targets.protocol import TargetError

LOCK_S = 30.0
STARTS_WITHIN_S = 120.0  # a job without a supervisor after this time has lost its submitter


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """No other process assigns anything during the block; the assignment must be in the job's folder by its end."""
    until_s = time.monotonic() + LOCK_S
    while time.monotonic() < until_s:
        with try_lock(path) as lock:
            if lock is not None:
                yield
                return
        time.sleep(0.01)
    raise TargetError(f"{path} is still locked by another process after {LOCK_S:g} s")


def submissions_of_others(folder: JobFolder, host: str) -> Iterator[JobSubmission]:
    """Submissions of all other jobs that run on this host or are about to."""
    for path in folder.path.parent.parent.glob("*/*"):
        other = JobFolder(path)
        submission = other.submission() if path != folder.path else None
        if submission is None or submission.host != host:
            continue
        identity = other.identity()
        with contextlib.suppress(OSError):
            is_new = identity is None and time.time() - (path / "job.json").stat().st_mtime < STARTS_WITHIN_S
            if is_new or alive(identity):
                yield submission


LOOK_AGAIN_S = 0.5  # poll interval for free GPUs
_QUERY = ("--query-gpu=index,uuid", "--format=csv,noheader")


class LocalGpu(msgspec.Struct, frozen=True):
    index: int  # as nvidia-smi counts: by address on the bus
    uuid: str


async def gpus_of_machine() -> list[LocalGpu]:
    """GPUs that this process may use; none without nvidia-smi, which the job's own facts then show. Raises TargetError
    if nvidia-smi fails: a job started anyway would share GPUs with others."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    code, text = await ask(program, *_QUERY)
    if code != 0:
        raise TargetError(f"cannot assign GPUs: {program} failed: {text}")
    return visible(parse(text), os.environ)


def parse(text: str) -> list[LocalGpu]:
    rows = [[field.strip() for field in line.split(",")] for line in text.splitlines()]
    return [LocalGpu(int(row[0]), row[1]) for row in rows if len(row) == 2 and row[0].isdigit()]


def visible(gpus: Sequence[LocalGpu], variables: Mapping[str, str]) -> list[LocalGpu]:
    """GPUs in CUDA_VISIBLE_DEVICES, in its order; as in CUDA, the first unknown name ends the list."""
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
    """Indices of `count` GPUs that no other job has, or of all if the machine has fewer. Raises TargetError (QUEUE)
    while other jobs use them. The caller holds the lock."""
    taken = {index for submission in submissions_of_others(folder, host) for index in submission.gpus}
    free = [gpu.index for gpu in gpus if gpu.index not in taken]
    wanted = min(count, len(gpus))
    if len(free) < wanted:
        raise TargetError(f"GPUs requested: {wanted}, free: {len(free)}; waiting for other jobs", Outcome.QUEUE)
    return free[:wanted]


def locked_gpus(folder: JobFolder) -> contextlib.AbstractContextManager[None]:
    return locked(folder.path.parents[2] / "gpus.lock")


FIRST, LAST = 20_000, 29_999  # below ephemeral ports and NodePorts
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


@contextlib.contextmanager
def reserved(folder: JobFolder, submission: JobSubmission, before: JobSubmission | None) -> Iterator[dict[str, int]]:
    """A free port for each that the job names. No other process assigns ports during the block; they must be in the
    job's folder by its end. `before`: an earlier, unfinished submission, whose ports are kept because it may still
    start."""
    names = [port.name for port in submission.job.ports]
    if not names:
        yield {}
        return
    with locked(folder.path.parents[2] / "ports.lock"):
        others = submissions_of_others(folder, submission.host)
        taken = {number for other in others for number in other.ports.values()}
        kept = before.ports if before is not None and list(before.ports) == names else {}
        if kept and all(number not in taken and _free(number) for number in kept.values()):
            yield kept
        else:
            yield dict(zip(names, _choose(len(names), taken), strict=True))


def _choose(count: int, taken: set[int]) -> list[int]:
    """Random, so that users with separate state folders rarely collide."""
    candidates = [number for number in _range() if number not in taken]
    random.shuffle(candidates)
    chosen = list(islice(filter(_free, candidates), count))
    if len(chosen) < count:
        raise TargetError(f"not enough free ports from {FIRST} to {LAST} ({count} needed)")
    return chosen


def _range() -> list[int]:
    """The range without the kernel's ephemeral ports; the whole range if nothing else is left."""
    wanted = range(FIRST, LAST + 1)
    try:
        low, high = map(int, _EPHEMERAL.read_text().split())
    except (OSError, ValueError):
        return list(wanted)
    return [number for number in wanted if not low <= number <= high] or list(wanted)


def _free(number: int) -> bool:
    """Whether a server could bind the port on any address: no listener, and none in TIME_WAIT."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            trial = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # a kernel without that family
            continue
        with trial:
            try:
                if family == socket.AF_INET6:
                    trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                trial.bind((address, number))
            except OSError as error:
                if family == socket.AF_INET or error.errno == errno.EADDRINUSE:
                    return False
    return True
