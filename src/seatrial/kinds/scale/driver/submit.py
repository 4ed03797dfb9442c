"""Creates the workloads on schedule: in an open loop that waits for no answer, or in a closed loop.

Each acknowledged workload is recorded at once, so that after a kill only the missing ones are created. A workload that
exists without a record is recognised by its name."""

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from seatrial.http.http1 import RequestAttempt
from seatrial.kinds.driver import wait_for
from seatrial.kinds.scale.driver.plan import PlannedWorkload, WorkloadTarget
from seatrial.kinds.scale.driver.stages import read_records
from seatrial.kinds.scale.work import DELETED_FILE, SUBMITTED, Deletion, Submission
from seatrial.kubernetes import KubernetesError

SPIN_S = 0.001  # below this, spin: a timer would be late
TOGETHER = 32
_LOOK_S = 0.02  # poll interval of closed loops
_MOST = 1_000  # characters of a server's message

_T = TypeVar("_T", Submission, Deletion)


class SubmissionRecords(Generic[_T]):
    """A file with one record per workload, including those from before a restart."""

    def __init__(self, path: Path, kind: type[_T]) -> None:
        self.all: dict[int, _T] = {one.number: one for one in read_records(path, kind)}
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, record: _T) -> None:
        self.all[record.number] = record
        os.write(self._fd, msgspec.json.encode(record) + b"\n")

    def close(self) -> None:
        os.close(self._fd)


class Submitter:
    """Sends workloads. `stopping` ends its loops; the rest is not sent."""

    def __init__(self, place: WorkloadTarget, files: Path, stopping: asyncio.Event) -> None:
        self._place, self._stopping = place, stopping
        self.submitted = SubmissionRecords(files / SUBMITTED, Submission)
        self.deleted = SubmissionRecords(files / DELETED_FILE, Deletion)

    def close(self) -> None:
        self.submitted.close()
        self.deleted.close()

    async def open_loop(
        self,
        planned: Sequence[PlannedWorkload],
        offsets: Sequence[float],
        start_s: float,
        replaced: Sequence[PlannedWorkload] = (),
    ) -> None:
        """Sends each at its time, and deletes one of `replaced` with each."""
        every = itertools.zip_longest(planned, offsets, replaced)
        missing = [row for row in every if row[0].number not in self.submitted.all]
        begun_s = start_s - (missing[0][1] if missing else 0.0)  # after a restart, do not wait for those already sent
        async with asyncio.TaskGroup() as group:
            for one, offset, old in missing:
                if not await self._until(begun_s + offset):
                    return
                if old:
                    group.create_task(self._delete(old, begun_s + offset))
                group.create_task(self._submit(one, begun_s + offset))
                if one.number % TOGETHER == 0:
                    await asyncio.sleep(0)  # so that a burst begins before all its tasks are created

    async def closed_loop(
        self, planned: Sequence[PlannedWorkload], in_flight: int, done: Callable[[], Set[int]] | None = None
    ) -> None:
        """Keeps at most `in_flight` that are not `done`; by default, not acknowledged."""
        going: set[int] = set()
        async with asyncio.TaskGroup() as group:
            for one in self._missing(planned):
                while len(going) >= in_flight:
                    if not await self._until(time.monotonic() + _LOOK_S):
                        return
                    answered = {number for number in going if number in self.submitted.all}
                    failed = {number for number in answered if self.submitted.all[number].problem}
                    going -= failed | (answered & done() if done else answered)
                if self._stopping.is_set():
                    return
                going.add(one.number)
                group.create_task(self._submit(one, time.monotonic()))

    async def waves(self, planned: Sequence[PlannedWorkload], at_once: int, delay_s: float) -> None:
        """Sends waves; each begins `delay_s` after the slowest answer of the one before. The last may be smaller."""
        missing = self._missing(planned)
        for first in range(0, len(missing), at_once):
            if first and not await self._until(time.monotonic() + delay_s):
                return
            async with asyncio.TaskGroup() as group:
                for one in missing[first : first + at_once]:
                    group.create_task(self._submit(one, time.monotonic()))

    def _missing(self, planned: Sequence[PlannedWorkload]) -> list[PlannedWorkload]:
        return [one for one in planned if one.number not in self.submitted.all]

    async def _submit(self, one: PlannedWorkload, intended_s: float) -> None:
        attempts: list[RequestAttempt] = []
        problem = ""
        try:
            await self._place.create(one, attempts)
        except KubernetesError as error:
            problem = str(error)[:_MOST] or "refused without a reason"
        is_sent = any(tried.sent_s is not None for tried in attempts)
        self.submitted.add(
            Submission(
                number=one.number,
                intended_s=intended_s,
                sent_s=attempts[0].sent_s or attempts[0].queued_s if is_sent else None,
                acknowledged_s=attempts[-1].answered_s if attempts and not problem else None,
                attempts=len(attempts),
                refusals=tuple(tried.status for tried in attempts if tried.status >= 300),
                problem=problem,
                of=one.of.name,
                namespace=one.namespace,
                phase=one.phase,
                waited_s=sum(tried.wait_s for tried in attempts),
                late_s=max(attempts[0].queued_s - intended_s, 0.0) if attempts else 0.0,
                paused_s=_pauses_s(attempts) if one.of.wait else 0.0,
            )
        )

    async def _delete(self, one: PlannedWorkload, intended_s: float) -> None:
        try:
            await self._place.delete(one)
            self.deleted.add(Deletion(one.number, intended_s, time.monotonic()))
        except KubernetesError as error:
            self.deleted.add(Deletion(one.number, intended_s, problem=str(error)[:_MOST]))

    async def _until(self, at_s: float) -> bool:
        """Waits until the time; False if stopped before."""
        while (left_s := at_s - time.monotonic()) > 0:
            if left_s < SPIN_S:
                await asyncio.sleep(0)
            elif await wait_for(self._stopping, left_s - SPIN_S / 2):
                return False
        return not self._stopping.is_set()


def _pauses_s(attempts: Sequence[RequestAttempt]) -> float:
    """The time between requests, without that before retries."""
    pairs = ((one.answered_s, one.wait_s, then.queued_s) for one, then in itertools.pairwise(attempts))
    return sum(max(then_s - at_s - wait_s, 0.0) for at_s, wait_s, then_s in pairs if at_s is not None)
