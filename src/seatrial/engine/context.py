"""Context for the phases of an attempt: what all attempts of a run share, and what one part needs.

Failpoints let tests kill a run or make it fail at every journal write and every effect; each has a number.
`SEATRIAL_FAILPOINT=7` kills this process (SIGKILL) at the seventh point; `7:ENOSPC` raises that error there;
`SEATRIAL_FAILPOINT_LOG=FILE` logs the name of each point passed, so that a first run shows how many there are."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seatrial.engine.follow import Follower
from seatrial.engine.secrets import Secrets
from seatrial.engine.states import State
from seatrial.job import Exit, Part
from seatrial.record import Journal, RunFolder
from seatrial.suite import Cell, TargetEntry
from seatrial.targets import Found, HasTombstones, Target


class Failpoints:
    def __init__(self) -> None:
        number, _, self._error = os.environ.get("SEATRIAL_FAILPOINT", "").partition(":")
        self._number = int(number) if number else 0
        self._log = os.environ.get("SEATRIAL_FAILPOINT_LOG")
        self._passed = 0

    def __call__(self, point: str) -> None:
        self._passed += 1
        if self._log:
            with open(self._log, "a") as file:
                file.write(f"{self._passed} {point}\n")
        if self._passed == self._number:
            if self._error:
                raise OSError(getattr(errno, self._error), os.strerror(getattr(errno, self._error)))
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class AttemptContext:
    """Shared by all attempts of a run. `at` is the failpoint; `update` shows a cell's state to the user."""

    folder: RunFolder
    journal: Journal
    secrets: Secrets
    follower: Callable[[str], Awaitable[Follower]]  # by the target's name
    targets: dict[str, TargetEntry]
    update: Callable[[str, str, str], None]  # cell id, state, progress
    at: Callable[[str], None]
    began_s: float  # event loop time of the start of the run
    host: str = field(default_factory=socket.gethostname)

    def mask(self, text: str) -> str:
        return self.secrets.mask.text(text)


@dataclass(frozen=True, eq=False)
class PartContext:
    """One part of an attempt in all its phases. `stop_reason` returns why the part should stop or not start, if so;
    `usable` returns the handle and target of another part, by name, once a part that comes after it can start."""

    attempt: AttemptContext
    cell: Cell
    number: int
    part: Part
    alone: bool  # it is the only part of the attempt
    planned_on: str  # the host of the process that planned the attempt; empty if unknown
    stop_reason: Callable[[], Exit | None]
    usable: Callable[[str], tuple[str, str] | None]
    at_s: dict[State, float] = field(default_factory=dict)  # event loop time of each transition
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def folder(self) -> Path:
        return self.attempt.folder.attempt(self.cell.hash, self.number, self.part.name)

    async def follower(self) -> Follower:
        return await self.attempt.follower(self.part.target)

    async def target(self) -> Target:
        return (await self.follower()).target

    async def find(self) -> Found | None:
        """The job, if its target has it."""
        jobs = await (await self.target()).list(self.part.job.run)
        return next((found for found in jobs if found.name == self.part.job.name), None)

    async def was_reaped(self) -> bool:
        """Whether `seatrial reap` deleted the job, on this machine or another."""
        job = self.part.job
        if self.attempt.folder.was_reaped(job.name):
            return True
        target = await self.target()
        return isinstance(target, HasTombstones) and await target.is_buried(job.run, job.name)

    async def enter(self, state: State, files: Sequence[Path] = (), **fields: object) -> None:
        """Writes the transition to the journal; with `files`, syncs them and the journal to disk."""
        await self.write(state, files, **fields)
        self.at_s[state] = asyncio.get_running_loop().time()

    def write(self, event: str, files: Sequence[Path] = (), **fields: object) -> Awaitable[None]:
        named = {"cell": self.cell.hash, "attempt": self.number, "part": self.part.name}
        return self.attempt.journal.write(event, durable=bool(files), files=files, **named, **fields)

    async def wait(self, deadline_s: float | None = None) -> None:
        """Waits for an event of the job, or a new phase of another part."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline_s):
                await self.news.wait()
        self.news.clear()
