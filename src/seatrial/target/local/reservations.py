"""Giving out what only one job of this machine can have at a time: the lock for it, and what the others have."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from seatrial.target.local.folders import JobFolder, JobSubmission
from seatrial.target.local.processes import alive
from seatrial.target.protocol import TargetError

LOCK_S = 30.0
STARTS_WITHIN_S = 120.0  # from the folder of a job to its supervisor; a submitter that died leaves none


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else gives out anything before the block ends: by then it has to be in the folder of the job."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until_s = time.monotonic() + LOCK_S
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until_s:
                    raise TargetError(f"{path} is locked by another process, which does not end") from None
                time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def submissions_of_others(folder: JobFolder, host: str) -> Iterator[JobSubmission]:
    """Of all jobs beside `folder` that run here or are about to, whoever submitted them."""
    for path in folder.path.parent.parent.glob("*/*"):
        other = JobFolder(path)
        submission = other.submission() if path != folder.path else None
        if submission is None or submission.host != host:
            continue
        identity = other.identity()
        if alive(identity) or (identity is None and _is_new(path / "job.json")):
            yield submission


def _is_new(file: Path) -> bool:
    try:
        return time.time() - file.stat().st_mtime < STARTS_WITHIN_S
    except OSError:
        return False
