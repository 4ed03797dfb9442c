"""Watches local jobs: their end immediately (pidfd), their progress by polling."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from seatrial.job import Event, Exit, Outcome, Stage, StageTime
from seatrial.job.reading import boot_id
from seatrial.targets.job_files import Progress
from seatrial.targets.local.containers import remove_container
from seatrial.targets.local.folders import JobFolder, JobSubmission, ProcessIdentity
from seatrial.targets.local.leftovers import at_terminals, end_leftovers
from seatrial.targets.local.supervisors import open_process
from seatrial.targets.protocol import TargetError

_UNSEEN = "processes that left its folder, environment and control group may still be running"
CLOCK_SET_S = 86400.0
PROGRESS_S = 0.25
_READ_BYTES = 1 << 20


@dataclass(eq=False)
class _Watched:
    handle: str
    folder: JobFolder
    submission: JobSubmission
    identity: ProcessIdentity
    progress: Progress
    ready: bool  # needs no READY event, or it was sent
    pidfd: int | None = None
    cancelled: bool = False
    offset: int = 0  # in the records


class Watcher:
    def __init__(self) -> None:
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._running: dict[str, _Watched] = {}
        self._known: set[str] = set()
        self._progress: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def events(self) -> AsyncIterator[Event]:
        while True:
            yield await self._events.get()

    def add(self, handle: str, folder: JobFolder, submission: JobSubmission, identity: ProcessIdentity) -> None:
        """Watches a job from now on. A second call does nothing."""
        if handle in self._known:
            return
        self._known.add(handle)
        job = submission.job
        progress = Progress([step.name for step in job.steps])
        watched = _Watched(handle, folder, submission, identity, progress, ready=job.ready is None)
        self._report(watched, StageTime(Stage.CREATED, submission.created_s, "submitter"))
        self._report(watched, _stage_time(Stage.STARTED, identity.wall_s, submission))
        watched.pidfd = open_process(identity)
        self._running[handle] = watched
        loop = asyncio.get_running_loop()
        if watched.pidfd is None:
            loop.call_soon(self._ended, watched)
        else:
            loop.add_reader(watched.pidfd, self._ended, watched)
        if self._progress is None or self._progress.done():
            self._progress = asyncio.create_task(self._follow())

    def mark_cancelled(self, handle: str) -> None:
        if handle in self._running:
            self._running[handle].cancelled = True

    def forget(self, handle: str) -> None:
        """Stops events of a removed job."""
        if (watched := self._running.pop(handle, None)) is not None:
            self._close_pidfd(watched)

    def cpus(self) -> list[list[int]]:
        """CPUs of each running job."""
        return [watched.submission.cpus for watched in self._running.values()]

    async def close(self) -> None:
        for handle in list(self._running):
            self.forget(handle)
        if self._progress is not None:
            self._progress.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._progress
        if self._ending:
            await asyncio.wait(self._ending)

    # ---- the end of a job

    def _ended(self, watched: _Watched) -> None:
        if self._running.pop(watched.handle, None) is None:
            return
        self._close_pidfd(watched)
        before = -1
        while not watched.ready and watched.offset > before:  # it ended before all records were read
            before = watched.offset
            self._read_on(watched)
        if (end := watched.folder.end()) is not None:
            exit_ = Exit(end.outcome, end.code, message=end.message)
            self._report(watched, _stage_time(Stage.FINISHED, end.wall_s, watched.submission), exit_)
            return
        task = asyncio.create_task(self._lost(watched))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _lost(self, watched: _Watched) -> None:
        """The supervisor was killed: kills the job's processes, then reports that its end is unknown."""
        identity, message = watched.identity, f"the job's supervisor was killed; {_UNSEEN}"
        if identity.boot_id != boot_id():
            message = "the machine rebooted while the job ran"
        elif not watched.folder.path.exists():
            message = "the job's folder was deleted"
        try:
            count = await asyncio.to_thread(end_leftovers, watched.folder.path, identity.cgroups)
            if watched.submission.container:
                await remove_container(watched.submission.engine, watched.submission.container)
            if count:
                message += f"; remaining processes killed: {count}"
            if left := await asyncio.to_thread(at_terminals, watched.folder.path):
                message += f"; {left}"
        except TargetError as error:
            message += f"; {error}"
        outcome = Outcome.CANCELLED if watched.cancelled else Outcome.LOST
        now_s = time.time()
        try:
            last_s = os.stat(f"{watched.folder.path}/records.jsonl").st_mtime
        except OSError:
            last_s = identity.wall_s
        known = StageTime(Stage.FINISHED, now_s, "target", uncertainty_s=max(0.0, now_s - last_s))
        self._report(watched, known, Exit(outcome, message=message))

    def _close_pidfd(self, watched: _Watched) -> None:
        if watched.pidfd is not None:
            asyncio.get_running_loop().remove_reader(watched.pidfd)
            os.close(watched.pidfd)
            watched.pidfd = None

    def _report(self, of: _Watched, known: StageTime | None, exit_: Exit | None = None, progress: str = "") -> None:
        self._events.put_nowait(Event(of.handle, known, exit_, (of.identity.host,), progress))

    # ---- records

    async def _follow(self) -> None:
        """Ends when no job runs."""
        while self._running:
            await asyncio.sleep(PROGRESS_S)
            for watched in list(self._running.values()):
                if progress := self._read_on(watched):
                    self._report(watched, None, progress=progress)

    def _read_on(self, watched: _Watched) -> str:
        """Reads at most one block of new records; returns the latest progress."""
        try:
            with open(f"{watched.folder.path}/records.jsonl", "rb") as file:
                file.seek(watched.offset)
                data = file.read(_READ_BYTES)
        except OSError:
            return ""
        watched.offset += len(data)
        progress = watched.progress.feed(data)
        at_s = watched.progress.ready_at_s
        if at_s is not None and not watched.ready:
            watched.ready = True
            wall_s = watched.identity.wall_s + at_s - watched.identity.at_s
            self._report(watched, _stage_time(Stage.READY, wall_s, watched.submission))
        return progress


def _stage_time(stage: Stage, reported_s: float, submission: JobSubmission) -> StageTime:
    """The supervisor's time if it is plausible: a job can change its files. Allows for clock changes."""
    now_s = time.time()
    if submission.created_s - CLOCK_SET_S <= reported_s <= now_s + CLOCK_SET_S:
        return StageTime(stage, reported_s, "supervisor")
    return StageTime(stage, now_s, "target", uncertainty_s=max(0.0, now_s - submission.created_s))
