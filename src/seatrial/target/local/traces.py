"""Which processes are a job's, by whatever they still have of it: its mark in their environment, its folder as where
they are or what they run from, a file in it that they write.

A job that wants to can take all of that from a process. It is found then only as long as its supervisor lives, from
which no child gets away."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MARK = b"SEATRIAL_FILES="  # and the folder of a job, for that is only one
DELETED = " (deleted)"  # what the kernel says behind the path of what is not there any more


class Trace(NamedTuple):
    """A process, and the path below the folder of jobs by which it is known."""

    pid: int
    path: str
    name: str
    at_terminal: bool  # it may be a person who looks at the job: not to be ended unasked


def of_job(job: Path) -> list[Trace]:
    """Those of the job in this folder; there may be none of it any more."""
    return list(_below(str(job)))


def jobs_traced(jobs: Path) -> set[Path]:
    """Folders of jobs that some process still is of. `jobs`: where they would be, each below its run."""
    found = (Path(trace.path).relative_to(jobs).parts for trace in _below(str(jobs)))
    return {jobs / parts[0] / parts[1] for parts in found if len(parts) > 1}


def ended(pid: int) -> bool:
    """Gone, or only waiting for its parent to ask how it ended."""
    return _fields(pid)[:1] in ([], [b"Z"], [b"X"])


def _below(folder: str) -> Iterator[Trace]:
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
            if path.startswith("/") and not path.startswith("/dev/") and _written(pid, number):
                yield path.removesuffix(DELETED)


def _written(pid: int, number: str) -> bool:
    lines = Path(f"/proc/{pid}/fdinfo/{number}").read_text().splitlines()
    flags = int(next(line for line in lines if line.startswith("flags:")).split()[1], 8)
    return flags & os.O_ACCMODE != os.O_RDONLY


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
