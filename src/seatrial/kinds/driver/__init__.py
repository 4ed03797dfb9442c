"""Seatrial's own programs that are parts of an attempt: they ask a server, or load a cluster, and record what they saw.

A driver is a process of its own, `python -m seatrial.kinds.driver KIND`, found by `plugins.drivers`."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from seatrial import __version__
from seatrial.job import PEER, Peer, Unreadable, convert, decode, read_json

if TYPE_CHECKING:
    from seatrial.targets import Endpoint, Target

_T = TypeVar("_T")
_NOTES_FD = "SEATRIAL_NOTES_FD"
BEGUN, FINISHED = "begun", "finished"  # the notes of things
NOTE_BYTES = 1 << 20  # the agent takes no longer one


class DriverError(Exception):
    """The driver cannot do its work; the message says why, and is all that a person needs."""


class DrivenJob(msgspec.Struct, frozen=True):
    """Which attempt a driver is a part of."""

    run: str
    cell: str
    attempt: int


class Given(msgspec.Struct, frozen=True):
    """The file that a driver is given: `agent/steps/kinds.py` writes it."""

    work: dict[str, Any]
    files: str
    notes: list[dict[str, Any]] = []  # of earlier lives of this driver, in order
    job: DrivenJob | None = None


class Driver:
    def __init__(self, given: Given, notes_fd: int, peer: Peer | None = None) -> None:
        self.work = given.work
        self.files = Path(given.files)  # for bulk: what is written there is kept with the attempt
        self.stopping = asyncio.Event()  # set when it is told to end: write what there is, and return
        self.peer = peer
        self.job = given.job
        self.finished: dict[str, dict[str, Any]] = {}
        self.unknown: list[str] = []
        self._fd = notes_fd
        for note in given.notes:
            thing = note.get("thing")
            if not isinstance(thing, str):
                continue
            if note.get("note") == BEGUN and thing not in self.unknown:  # a driver may have done an unknown one again
                self.unknown.append(thing)
            elif note.get("note") == FINISHED:
                self.unknown.remove(thing)
                self.finished[thing] = note

    @classmethod
    def read(cls, path: Path) -> "Driver":
        try:
            given = read_json(path, Given)
            peer = decode(os.environ[PEER], Peer) if os.environ.get(PEER) else None
        except (OSError, Unreadable) as error:
            raise DriverError(f"cannot read the work description {path}: {error}") from error
        return cls(given, int(os.environ[_NOTES_FD]), peer)

    def work_as(self, form: type[_T]) -> _T:
        """Raises DriverError for work of another version: the image of a driver elsewhere may have one."""
        version = self.work.get("version") or __version__
        if version != __version__:
            raise DriverError(
                f"the image has Seatrial {__version__}, this run uses {version}; use an image with the same version"
            )
        try:
            return convert(self.work, form)
        except Unreadable as error:
            raise DriverError(f"this version of Seatrial cannot run this work: {error}") from error

    # ---- what is done

    def to_do(self, things: Iterable[str]) -> list[str]:
        """Those that no earlier life began."""
        begun = {*self.finished, *self.unknown}
        return [thing for thing in things if thing not in begun]

    def begin(self, thing: str) -> None:
        self.note(BEGUN, thing=thing)

    def finish(self, thing: str, **data: Any) -> None:
        self.note(FINISHED, thing=thing, **data)
        self.finished[thing] = data

    def progress(self, text: str) -> None:
        """What it is at, for a person who watches."""
        self.note("progress", text=text)

    def note(self, note: str, **data: Any) -> None:
        """A record. It is the agent's when this returns: a kill of this process does not take it back."""
        line = msgspec.json.encode({"note": note, **data}) + b"\n"
        if len(line) > NOTE_BYTES:
            raise DriverError(f"a note {note!r} of {len(line)} bytes is too long; write it to a file")
        view = memoryview(line)
        while view:
            view = view[os.write(self._fd, view) :]

    # ---- the part that it drives

    def target(self) -> "Target":
        """The target of the part that this one comes after, or of the trial. It is not open."""
        from seatrial import plugins

        if self.peer is None:
            raise DriverError(f"{PEER} is not set; no other part to connect to")
        if self.peer.kind not in plugins.targets():
            raise DriverError(f"this Seatrial has no target of kind {self.peer.kind}")
        kind = plugins.targets()[self.peer.kind]
        return kind.open(self.peer.target, kind.options.model_validate(self.peer.options))

    @contextlib.asynccontextmanager
    async def endpoint(self, port: str) -> AsyncIterator["Endpoint"]:
        """The address of a port of the part that this one comes after, once it answers. The connection is this
        process's own: it lives and dies with the driver, whatever becomes of the engine. What the route adds to every
        answer is recorded."""
        from seatrial.targets import TargetError
        from seatrial.targets.route import opened_inside

        if self.peer is None:
            raise DriverError(f"{PEER} is not set; no other part to connect to")
        peer = self.peer
        try:
            async with contextlib.AsyncExitStack() as opened:
                if port in peer.addresses:  # beside it: no right on the target and no way through it are needed
                    address = await opened_inside(peer.addresses[port], f"straight, on target {peer.target}")
                else:
                    target = self.target()
                    await target.open()
                    opened.push_async_callback(target.close)
                    address = await opened.enter_async_context(target.endpoint(peer.handle, port))
                overhead = {"overhead_s": address.overhead_s, "overhead_p99_s": address.overhead_p99_s}
                self.note("endpoint", port=port, route=address.route, **overhead)
                yield address
        except TargetError as error:
            raise DriverError(f"port {port} of the {peer.part} cannot be reached: {error}") from error


async def wait_for(stopping: asyncio.Event, seconds: float) -> bool:
    """That long, or until the driver is to end; whether it is."""
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return False
    return True


@contextlib.asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """It goes on while the block is open, and is cancelled at its end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
