"""Follows the journals of runs of any process, with one reader per run for all clients.

1. A missing journal, an incomplete last line and a missing run folder are retried.
2. A journal that was replaced (for example by a restored folder) is read again from the start, and clients reload.
3. A journal is not read beyond a damaged line; the state up to it and the error stay available.
4. The reader stops when the last client disconnects.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from seatrial.job import Unreadable
from seatrial.job.plan import PlanFile
from seatrial.record import DamagedRun, RecordError, RunFolder, read_journal
from seatrial.report.view.live import LiveView

_EVERY_S = 0.3
_CELLS_PER_S = 1_000  # large runs are refreshed less often, because each refresh finds their causes again


class FollowedRun:
    """The current state of a run. `generation` changes when its journal is replaced."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.run = LiveView(PlanFile([], []))
        self.planned = False  # whether the plan was read
        self.generation = 0
        self.wrong = ""  # the error that stopped following
        self._bytes_read = 0
        self._inode = 0

    def read(self) -> bool:
        """Reads what is new. Returns whether anything changed. Blocking: do not call in an event loop."""
        before = self.run.line, self.generation, self.wrong
        try:
            self._read()
        except (DamagedRun, RecordError, OSError, Unreadable) as error:
            self.wrong = str(error)
        return (self.run.line, self.generation, self.wrong) != before

    def _read(self) -> None:
        try:
            found = os.stat(self.folder.journal)
        except FileNotFoundError:
            found = None
        replaced = found and self._inode and (found.st_ino != self._inode or found.st_size < self._bytes_read)
        if replaced or not self.planned:
            self.run, self._bytes_read = LiveView(self.folder.read_plan()), 0
            self.generation += self.planned
            self.planned = True
        if replaced:
            self.wrong = ""
        if found:
            self._inode = found.st_ino
            if found.st_size != self._bytes_read and not self.wrong:
                entries, self._bytes_read = read_journal(self.folder.journal, self._bytes_read, self.run.line + 1)
                for entry in entries:
                    self.run.take(entry)


def read_once(folder: RunFolder) -> FollowedRun:
    """The current state of a run. Blocking: do not call in an event loop."""
    one = FollowedRun(folder)
    one.read()
    return one


class Feed(ABC):
    """Something that clients follow, with one reader that refreshes it while there are clients."""

    every_s = _EVERY_S

    def __init__(self) -> None:
        self.clients = 0
        self._changed = asyncio.Event()
        self._refreshing = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None

    @abstractmethod
    async def _update(self) -> bool:
        """Refreshes the state. Returns whether anything changed."""

    async def changes_within(self, seconds: float) -> bool:
        """Waits for the next change after this call. Returns False if there was none in this time."""
        try:
            return await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return False

    async def refresh(self) -> None:
        async with self._refreshing:
            if await self._update():
                self._changed.set()
                self._changed = asyncio.Event()

    async def _read(self) -> None:
        while True:
            await asyncio.sleep(self.every_s)
            await self.refresh()

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Refreshes it until the block ends."""
        self.clients += 1
        try:
            await self.refresh()
            self._reader = self._reader or asyncio.create_task(self._read())
            yield
        finally:
            self.clients -= 1
            if not self.clients and self._reader:
                reader, self._reader = self._reader, None  # cleared first, so that a new client starts its own reader
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)


Parts = tuple[int, dict[str, str]]


class RunFeed(Feed):
    def __init__(self, folder: RunFolder) -> None:
        super().__init__()
        self.now = FollowedRun(folder)
        self._made: dict[int, Parts] = {}

    async def _update(self) -> bool:
        new = await asyncio.to_thread(self.now.read)
        if new:
            self._made = {}
        self.every_s = max(_EVERY_S, len(self.now.run.cells) / _CELLS_PER_S)
        return new

    async def parts(self, after: int, make: Callable[[FollowedRun, int], dict[str, str]]) -> Parts:
        """The line of the run now, and the parts that changed since a line, rendered once for all clients, in a thread.
        The run does not change until they are."""
        async with self._refreshing:
            if after not in self._made:
                self._made[after] = self.now.run.line, await asyncio.to_thread(make, self.now, after)
            return self._made[after]


class Followers:
    """The feeds of one event loop, by run."""

    def __init__(self) -> None:
        self._feeds: dict[str, RunFeed] = {}

    @asynccontextmanager
    async def follow(self, folder: RunFolder) -> AsyncIterator[RunFeed]:
        """The feed of the run, refreshed until the block ends."""
        one = self._feeds.setdefault(folder.run, RunFeed(folder))
        try:
            async with one.followed():
                yield one
        finally:
            if not one.clients:
                self._feeds.pop(folder.run, None)

    @property
    def readers(self) -> int:
        return len(self._feeds)
