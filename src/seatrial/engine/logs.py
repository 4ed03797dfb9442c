"""The logs of a run: from its folder if they have been collected, from the targets while jobs run.

1. Read-only: a run that another process owns is not affected.
2. Complete: output between the last poll and the job's removal is read from the run folder afterwards.
3. The log of a job with several hosts contains all of them, each line with its host first.
4. Masked with the secrets of the whole run, as far as this process can read them; `unread_secrets` names the others.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from seatrial import plugins
from seatrial.agent.masking.mask import Mask
from seatrial.engine.prepare import reopen, suite_of
from seatrial.engine.secrets import read_secrets
from seatrial.engine.states import PartRecord, RunRecord, State, read_run
from seatrial.job import Verdict
from seatrial.record import LiveReader, RunFolder, is_owned, read_journal
from seatrial.targets import Target, TargetError

_POLL_S = 0.25
_BLOCK_BYTES = 1 << 18
QUEUED = 64
_VERDICTS = frozenset(verdict.value for verdict in Verdict)


class LogSource(NamedTuple):
    cell: str  # hash
    attempt: int
    part: str


class LogPiece(NamedTuple):
    """Bytes of a log; or, with `problem`, why there are no more."""

    source: LogSource
    data: bytes
    problem: str = ""


class RunLogs:
    """The logs of some cells of a run. `cells`: ids by hash."""

    def __init__(self, folder: RunFolder, cells: Mapping[str, str]) -> None:
        self._folder = folder
        self._cells = cells
        self._run = RunRecord()
        self._bytes = self._entries = 0
        self._finished = False
        self._live = LiveReader(folder.path)
        self._over: set[str] = set()  # ids of cells that have a verdict
        self._queue: asyncio.Queue[LogPiece] = asyncio.Queue(QUEUED)
        self._streams: dict[LogSource, _Stream] = {}
        self._skipped: set[str] = set()  # hashes of cells that are not followed
        self._targets: dict[str, asyncio.Task[Target]] = {}
        self._stack = AsyncExitStack()
        self._mask: Mask | None = None
        self.unread_secrets: list[str] = []

    async def __aenter__(self) -> "RunLogs":
        self._read_on()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def over(self) -> bool:
        """Whether every cell has its verdict."""
        return self._finished or all(id_ in self._over for id_ in self._cells.values())

    async def now(self, attempt: int | None = None) -> AsyncIterator[LogPiece]:
        """The current logs, cell by cell: of the last attempt, or of the one with this number."""
        for hash_ in self._cells:
            attempts = self._run.attempts.get(hash_, [])
            for one in [one for one in attempts if one.number == attempt] if attempt else attempts[-1:]:
                for name, part in one.parts.items():
                    async for piece in self._now(LogSource(hash_, one.number, name), part):
                        yield piece

    async def _now(self, source: LogSource, part: PartRecord) -> AsyncIterator[LogPiece]:
        if part.state.reached(State.COLLECTED):
            for block in _blocks(self._path(source)):
                yield LogPiece(source, block)
        elif part.handle is not None:
            try:
                async for block in self._live_log(part, follow=False):
                    yield LogPiece(source, block)
            except TargetError as error:
                yield LogPiece(source, b"", str(error))

    async def follow(self, ended_too: bool) -> AsyncIterator[LogPiece]:
        """All output until every cell has its verdict, or until the run has no owner and its jobs have ended. Skips
        cells that have already ended, unless `ended_too`."""
        if not ended_too:
            self._skipped = {hash_ for hash_, id_ in self._cells.items() if id_ in self._over}
        streams = self._streams
        over = False
        try:
            self._begin_streams()
            while not over or not self._queue.empty() or not all(stream.task.done() for stream in streams.values()):
                async for piece in _for_a_while(self._queue):
                    yield piece
                self._read_on()
                self._begin_streams()  # also of a job that started and ended since the last poll
                over = over or self._is_over()
                if over:
                    for stream in streams.values():
                        stream.collected.set()  # the log is there, or never will be
            await asyncio.gather(*(stream.task for stream in streams.values()))
        finally:
            for stream in streams.values():
                stream.task.cancel()
            await asyncio.gather(*(stream.task for stream in streams.values()), return_exceptions=True)

    def _begin_streams(self) -> None:
        streams = self._streams
        for hash_ in [hash_ for hash_ in self._cells if hash_ not in self._skipped]:
            for attempt in self._run.attempts.get(hash_, [])[-1:]:
                for name, part in attempt.parts.items():
                    source = LogSource(hash_, attempt.number, name)
                    if source not in streams and (part.handle is not None or part.state.reached(State.COLLECTED)):
                        stream = streams[source] = _Stream()
                        stream.task = asyncio.create_task(self._stream(source, part, stream))
                    if source in streams and part.state.reached(State.COLLECTED):
                        streams[source].collected.set()

    def _is_over(self) -> bool:
        if self._finished or all(id_ in self._over for hash_, id_ in self._cells.items() if hash_ not in self._skipped):
            return True
        return not is_owned(self._folder.path) and all(stream.read.is_set() for stream in self._streams.values())

    async def _stream(self, source: LogSource, part: PartRecord, stream: "_Stream") -> None:
        """Streams the log while the job writes it, then the rest from the run folder."""
        shown, problem = ShownLogs(), ""
        if not stream.collected.is_set() and not part.state.reached(State.COLLECTED):
            try:
                async for block in self._live_log(part, follow=True):
                    shown.add(block)
                    await self._queue.put(LogPiece(source, block))
            except TargetError as error:
                problem = str(error)
        stream.read.set()
        await stream.collected.wait()
        path = self._path(source)
        if path.is_file():
            rest = shown.rest(path.read_bytes())
            if rest is not None:
                await self._queue.put(LogPiece(source, rest))
                return
            problem = f"the log grew faster than it could be followed; {path} has its head and tail"
        if problem:
            await self._queue.put(LogPiece(source, b"", problem))

    async def _live_log(self, part: PartRecord, follow: bool) -> AsyncIterator[bytes]:
        """The job masks only its own secrets, but it may print those of another one."""
        if self._mask is None:
            run = reopen(self._folder)
            values, self.unread_secrets = read_secrets(run.suite, run.jobs())
            self._mask = Mask(values.values())
        stream = self._mask.stream()
        assert part.handle is not None
        async for block in (await self._target(part.target)).logs(part.handle, follow):
            if masked := stream.feed(block):
                yield masked
        if masked := stream.flush():
            yield masked

    def _path(self, source: LogSource) -> Path:
        return self._folder.attempt(*source) / "log.txt"

    def _read_on(self) -> None:
        if self._folder.journal.exists():
            entries, self._bytes = read_journal(self._folder.journal, self._bytes, self._entries)
            self._entries += len(entries)
            read_run(entries, self._run)
            self._finished = self._finished or any(entry["event"] == "finished" for entry in entries)
        for change in self._live.changes():
            if change.state in _VERDICTS:
                self._over.add(change.cell)

    async def _target(self, name: str) -> Target:
        """Returns the target, opening it once."""
        if name not in self._targets:
            self._targets[name] = asyncio.create_task(self._open(name))
        return await asyncio.shield(self._targets[name])

    async def _open(self, name: str) -> Target:
        entry = suite_of(self._folder).targets[name]
        target = plugins.targets()[entry.kind].open(name, entry.options)
        await target.open()
        self._stack.push_async_callback(target.close)
        return target


@dataclass
class _Stream:
    collected: asyncio.Event = field(default_factory=asyncio.Event)  # the run folder has the log, or never will
    read: asyncio.Event = field(default_factory=asyncio.Event)  # its target has no more of it
    task: "asyncio.Task[None]" = field(init=False)


async def _for_a_while(queue: "asyncio.Queue[LogPiece]") -> AsyncIterator[LogPiece]:
    until_s = asyncio.get_running_loop().time() + _POLL_S
    while True:
        try:
            async with asyncio.timeout_at(until_s):
                piece = await queue.get()
        except TimeoutError:
            return
        yield piece


class ShownLogs:
    """How much of a log has been shown. Lines are ordered per host, not between hosts."""

    def __init__(self) -> None:
        self._lines: dict[bytes, tuple[int, bytes]] = {}  # by host: number of lines, and the last one
        self._partial = b""

    def add(self, block: bytes) -> None:
        *whole, self._partial = (self._partial + block).split(b"\n")
        for line in whole:
            number, _ = self._lines.get(_host(line), (0, b""))
            self._lines[_host(line)] = (number + 1, line)

    def rest(self, log: bytes) -> bytes | None:
        """The part of the log that has not been shown; None if unknown, because its middle was cut out."""
        lines = log.split(b"\n")
        of_host: dict[bytes, list[int]] = {}
        for number, line in enumerate(lines[:-1]):
            of_host.setdefault(_host(line), []).append(number)
        shown: set[int] = set()
        for host, (count, last) in self._lines.items():
            places = of_host.get(host, [])
            if len(places) < count or lines[places[count - 1]] != last:
                return None
            shown.update(places[:count])
        rest = b"\n".join(line for number, line in enumerate(lines) if number not in shown)
        return rest.removeprefix(self._partial)


def _host(line: bytes) -> bytes:
    """`[N]` at the start of a line."""
    return line.partition(b" ")[0] if line.startswith(b"[") else b""


def _blocks(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            yield from iter(lambda: file.read(_BLOCK_BYTES), b"")
    except FileNotFoundError:  # the job wrote no log
        return
