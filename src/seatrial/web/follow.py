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
from typing import Any, NamedTuple

from seatrial.job import Unreadable
from seatrial.record import DamagedRun, RecordError, RunFolder, read_journal
from seatrial.report.view.live import LiveView

_EVERY_S = 0.3


class _Read(NamedTuple):
    """The result of reading the files; not yet applied."""

    run: LiveView | None  # a new state if the journal was replaced
    entries: list[dict[str, Any]]
    bytes_read: int
    inode: int
    wrong: str = ""


class FollowedRun:
    """The current state of a run. `generation` changes when its journal is replaced."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.run = LiveView({})
        self.planned = False  # whether the plan was read
        self.generation = 0
        self.wrong = ""  # the error that stopped following
        self._bytes_read = 0
        self._inode = 0

    @property
    def line(self) -> int:
        return self.run.line

    def read_files(self) -> _Read:
        """Blocking: do not call in an event loop."""
        try:
            run = None if self.planned else LiveView.of(self.folder.read_plan().cells)
            try:
                found = os.stat(self.folder.journal)
            except FileNotFoundError:
                return _Read(run, [], self._bytes_read, self._inode, self.wrong)
            start, first = self._bytes_read, self.line + 1
            if self._inode and (found.st_ino != self._inode or found.st_size < start):
                run, start, first = LiveView.of(self.folder.read_plan().cells), 0, 0
            elif found.st_size == start or self.wrong:
                return _Read(run, [], start, found.st_ino, self.wrong)
            entries, read = read_journal(self.folder.journal, start, first)
            return _Read(run, entries, read, found.st_ino)
        except (DamagedRun, RecordError, OSError, Unreadable) as error:
            return _Read(None, [], self._bytes_read, self._inode, str(error))

    def take(self, read: _Read) -> bool:
        """Applies the result of `read_files`. Returns whether anything changed."""
        if read.run is not None:
            self.generation += self.planned
            self.run, self.planned = read.run, True
        for entry in read.entries:
            self.run.take(entry)
        new = bool(read.entries) or read.wrong != self.wrong or (read.run is not None and self.generation > 0)
        self._bytes_read, self._inode, self.wrong = read.bytes_read, read.inode, read.wrong
        return new


def read_once(folder: RunFolder) -> FollowedRun:
    """The current state of a run. Blocking: do not call in an event loop."""
    one = FollowedRun(folder)
    one.take(one.read_files())
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

    async def wait(self) -> None:
        """Waits for the next change."""
        await self._changed.wait()

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


class RunFeed(Feed):
    def __init__(self, folder: RunFolder) -> None:
        super().__init__()
        self.now = FollowedRun(folder)
        self._made: dict[int, dict[str, str]] = {}

    async def _update(self) -> bool:
        new = self.now.take(await asyncio.to_thread(self.now.read_files))
        if new:
            self._made = {}
        return new

    def parts(self, after: int, make: "Callable[[FollowedRun, int], dict[str, str]]") -> dict[str, str]:
        """The changed parts since a line, rendered once for all clients."""
        if after not in self._made:
            self._made[after] = make(self.now, after)
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
