"""Runs plans: limits, retries, cancellation, journal, attach and reap."""

from seatrial.engine.commit import commit_of
from seatrial.engine.prepare import Options, PlanChanged, Prepared, create, reopen
from seatrial.engine.reap import Reaped, Reaping, reap
from seatrial.engine.run import Run, RunStopped
from seatrial.engine.secret import SecretError
from seatrial.engine.verify import RunRefused

__all__ = [
    "Options",
    "PlanChanged",
    "Prepared",
    "Reaped",
    "Reaping",
    "Run",
    "RunRefused",
    "RunStopped",
    "SecretError",
    "commit_of",
    "create",
    "reap",
    "reopen",
]
