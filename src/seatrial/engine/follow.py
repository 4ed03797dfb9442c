"""Follows the jobs of one target: one watch for all of them, and the events of each."""

import asyncio

import msgspec

from seatrial.agent.masking.mask import Mask
from seatrial.job import Event, Exit, Stage, StageTime
from seatrial.targets import Target, TargetError

BEGUN = (Stage.STARTED, Stage.READY)
NO_MASK = Mask()


class FollowedJob:
    """The events of a job so far. `changed` is set with every event."""

    def __init__(self) -> None:
        self.stages: list[StageTime] = []
        self.hosts: tuple[str, ...] = ()
        self.progress = ""
        self.exit: Exit | None = None
        self.changed = asyncio.Event()

    def take(self, event: Event) -> None:
        if event.time and all(known.stage != event.time.stage for known in self.stages):
            self.stages.append(event.time)
        self.hosts = event.hosts or self.hosts
        if event.time and event.time.stage in BEGUN:
            self.progress = ""  # it no longer waits
        self.progress = event.progress or self.progress
        self.exit = event.exit or self.exit
        self.changed.set()

    def reached(self, *stages: Stage) -> bool:
        return any(known.stage in stages for known in self.stages)


class Follower:
    """A target and its watch. If the watch fails, everyone who waits for one of its jobs gets the error."""

    def __init__(self, target: Target, mask: Mask = NO_MASK) -> None:
        self.target = target
        self._mask = mask
        self._jobs: dict[str, FollowedJob] = {}
        self._watch: asyncio.Task[None] | None = None
        self._lost: TargetError | None = None

    async def open(self) -> None:
        await self.target.open()

        async def read() -> None:
            async for event in self.target.watch():
                self.job(event.handle).take(self._masked(event))

        self._watch = asyncio.create_task(read(), name=f"watch {self.target.name}")
        self._watch.add_done_callback(lambda watch: self._wake_all())

    def _masked(self, event: Event) -> Event:
        """Without the secrets of the whole run; the job's agent knows only those of its own job."""
        ended = event.exit and msgspec.structs.replace(event.exit, message=self._mask.text(event.exit.message))
        return msgspec.structs.replace(event, progress=self._mask.text(event.progress), exit=ended)

    async def close(self) -> None:
        if self._watch:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)  # waiters already have the error
        await self.target.close()

    def _wake_all(self) -> None:
        for job in self._jobs.values():
            job.changed.set()

    def give_up(self, error: TargetError) -> None:
        """Marks the target as failed: every waiter for one of its jobs gets this error."""
        self._lost = error
        self._wake_all()

    def job(self, handle: str) -> FollowedJob:
        return self._jobs.setdefault(handle, FollowedJob())

    def forget(self, handle: str) -> None:
        self._jobs.pop(handle, None)

    def check(self, job: FollowedJob) -> None:
        """Raises if there will be no more events of a job that has not ended."""
        if job.exit is not None:
            return
        if self._lost is not None:
            raise self._lost
        assert self._watch
        if self._watch.done():
            self._watch.result()
            raise RuntimeError(f"the watch of target {self.target.name} ended")
