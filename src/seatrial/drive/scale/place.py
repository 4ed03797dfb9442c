"""Where a scale trial makes its workloads: what the driver asks of a cluster, or of this machine."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from seatrial.drive.scale.plan import PlannedWorkload
from seatrial.job.measured import MeasuredScale
from seatrial.job.scale import Stamp, Submission
from seatrial.kubernetes import RequestAttempt


class NotMade(Exception):
    """A workload, or its deletion, was refused for good: the message is what the place said."""


class WorkloadTarget(Protocol):
    """1. `check` raises DriverError when the place would not take one of each class: nothing is made before.
    2. A workload that an earlier life of the driver made is made: `create` says nothing of it.
    3. While `watching` is open, every stage of every workload is written to the file of stamps as it is seen; what an
       earlier life did not see is written with both ends of the time in which it happened.
    4. `clean` deletes all, or all of one phase, and says why something is left; empty when nothing is."""

    async def check(self) -> None: ...

    def watching(self) -> AbstractAsyncContextManager[None]: ...

    async def create(self, one: PlannedWorkload, attempts: list[RequestAttempt]) -> None: ...

    async def delete(self, one: PlannedWorkload) -> None: ...

    def lags(self) -> list[float]:
        """How late stages were seen, in seconds: measured again and again while it watched."""
        ...

    def measured(self, submissions: Mapping[int, Submission], stamps: list[Stamp], end_s: float) -> MeasuredScale:
        """How all of it was measured, and how the place was meanwhile."""
        ...

    async def clean(self, phase: str = "") -> str: ...
