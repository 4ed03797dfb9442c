"""Follows the jobs of one target: one watch for all of them, an inbox for each."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

from seatrial.job import Event, Exit, Job, Limits, Outcome, Stage, StageTime
from seatrial.target import Target, TargetError

BEGUN = (Stage.STARTED, Stage.READY)
BACKSTOP_S = 60.0  # a target ends a job by its own limits; this long after that, the engine does


class Followed:
    """What has been seen of a job so far."""

    def __init__(self) -> None:
        self.stages: list[StageTime] = []
        self.host = ""
        self.progress = ""
        self.exit: Exit | None = None
        self.changed = asyncio.Event()

    def take(self, event: Event) -> None:
        if event.time and all(seen.stage != event.time.stage for seen in self.stages):
            self.stages.append(event.time)
        self.host = event.host or self.host
        if event.time and event.time.stage in BEGUN:
            self.progress = ""  # what it waited for is over
        self.progress = event.progress or self.progress
        self.exit = event.exit or self.exit
        self.changed.set()

    def reached(self, *stages: Stage) -> bool:
        return any(seen.stage in stages for seen in self.stages)


class Follower:
    """Waits for three things at once: the job's events, its limits, and the watch itself, whose death is an error."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._jobs: dict[str, Followed] = {}
        self._watch: asyncio.Task[None] | None = None
        self._lost: TargetError | None = None

    async def open(self) -> None:
        await self.target.open()
        self._watch = asyncio.create_task(self._read(), name=f"watch {self.target.name}")
        self._watch.add_done_callback(self._wake)

    async def close(self) -> None:
        if self._watch:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)  # who waited for news has been told
        await self.target.close()

    async def _read(self) -> None:
        async for event in self.target.watch():
            self.job(event.handle).take(event)

    def _wake(self, watch: "asyncio.Task[None]") -> None:
        """The watch is over: whoever waits for news has to know, for there will be none."""
        for job in self._jobs.values():
            job.changed.set()

    def give_up(self, error: TargetError) -> None:
        """Whoever waits for a job here is told that by this error: nothing more can be done on the target."""
        self._lost = error
        for job in self._jobs.values():
            job.changed.set()

    def job(self, handle: str) -> Followed:
        return self._jobs.setdefault(handle, Followed())

    def forget(self, handle: str) -> None:
        self._jobs.pop(handle, None)

    async def submit(self, job: Job, secrets: Mapping[str, str]) -> str:
        """The handle. What has to be built or pulled before it can start counts as waiting for a place."""
        try:
            async with asyncio.timeout(job.limits.queue_s):
                return await self.target.submit(job, secrets)
        except TimeoutError:
            raise TargetError(_over(job.limits, started=False).message, Outcome.QUEUE) from None

    async def wait(
        self, handle: str, limits: Limits, show: Callable[[str, bool], None], submitted_s: float | None = None
    ) -> Followed:
        """Until the job has ended. `show` is told what it does, or waits for, and whether it has begun.

        What is over its queue limit, or far over its run limit, is cancelled here."""
        job = self.job(handle)
        submitted_s = time.monotonic() if submitted_s is None else submitted_s
        started_s: float | None = None
        over: Exit | None = None
        while job.exit is None:
            now_s = time.monotonic()
            if started_s is None and job.reached(*BEGUN):
                started_s = now_s
            show(job.progress, started_s is not None)
            deadline_s = None
            if over is None and started_s is None and limits.queue_s is not None:
                deadline_s = submitted_s + limits.queue_s
            elif over is None and started_s is not None and limits.run_s is not None:
                deadline_s = started_s + limits.run_s + limits.grace_s + BACKSTOP_S
            if deadline_s is not None and now_s >= deadline_s:
                over = _over(limits, started_s is not None)
                await self.target.cancel(handle)
                continue
            await self._change(job, None if deadline_s is None else deadline_s - now_s)
        if over is not None:
            job.exit = over
        return job

    async def _change(self, job: Followed, timeout_s: float | None) -> None:
        """Until there is news of the job, or the time is over. One event a job: thousands may be waited for at once."""
        assert self._watch
        if not self._watch.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await job.changed.wait()
        job.changed.clear()
        if self._lost is not None and job.exit is None:
            raise self._lost
        if self._watch.done() and job.exit is None:
            await self._watch
            raise RuntimeError(f"the watch of target {self.target.name} ended")


def _over(limits: Limits, started: bool) -> Exit:
    if started:
        return Exit(Outcome.TIMEOUT, message=f"ran for more than {limits.run_s:g} s, and its target did not end it")
    return Exit(Outcome.QUEUE, message=f"got no place within {limits.queue_s:g} s")
