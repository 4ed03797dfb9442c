"""Drivers: Seatrial's own processes of an attempt. The client of a serving trial asks a server; the load generator of a
scale trial creates workloads. Each is started as `python -m seatrial.kinds.driver KIND`, found by `plugins.drivers`."""

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
BEGUN, FINISHED = "begun", "finished"  # notes about items of work
NOTE_BYTES = 1 << 20  # limit of the agent for one note


class DriverError(Exception):
    """The driver cannot do its work. The message is shown to the user."""


class DrivenJob(msgspec.Struct, frozen=True):
    """The attempt that a driver belongs to."""

    run: str
    cell: str
    attempt: int


class Given(msgspec.Struct, frozen=True):
    """The input file of a driver, written by `agent/steps/kinds.py`."""

    work: dict[str, Any]
    files: str
    notes: list[dict[str, Any]] = []  # written before this driver was restarted, in order
    job: DrivenJob | None = None


class Driver:
    def __init__(self, given: Given, notes_fd: int, peer: Peer | None = None) -> None:
        self.work = given.work
        self.files = Path(given.files)  # folder for large files; kept with the attempt
        self.stopping = asyncio.Event()  # set when the driver must stop: write the results so far, then return
        self.peer = peer
        self.job = given.job
        self.finished: dict[str, dict[str, Any]] = {}
        self.unknown: list[str] = []
        self._fd = notes_fd
        for note in given.notes:
            thing = note.get("thing")
            if not isinstance(thing, str):
                continue
            if note.get("note") == BEGUN and thing not in self.unknown:  # a restarted driver may have begun it again
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
        """Raises DriverError if the work is of another version: a driver's image may have another Seatrial."""
        version = self.work.get("version") or __version__
        if version != __version__:
            raise DriverError(
                f"the image has Seatrial {__version__}, this run uses {version}; use an image with the same version"
            )
        try:
            return convert(self.work, form)
        except Unreadable as error:
            raise DriverError(f"this version of Seatrial cannot run this work: {error}") from error

    # ---- progress

    def to_do(self, things: Iterable[str]) -> list[str]:
        """The items that were not begun before a restart."""
        begun = {*self.finished, *self.unknown}
        return [thing for thing in things if thing not in begun]

    def begin(self, thing: str) -> None:
        self.note(BEGUN, thing=thing)

    def finish(self, thing: str, **data: Any) -> None:
        self.note(FINISHED, thing=thing, **data)
        self.finished[thing] = data

    def progress(self, text: str) -> None:
        """Shows the user what the driver is doing."""
        self.note("progress", text=text)

    def note(self, note: str, **data: Any) -> None:
        """Writes a record. Once this returns, the agent has it, and a kill of this process does not lose it."""
        line = msgspec.json.encode({"note": note, **data}) + b"\n"
        if len(line) > NOTE_BYTES:
            raise DriverError(f"a note {note!r} of {len(line)} bytes is too long; write it to a file")
        view = memoryview(line)
        while view:
            view = view[os.write(self._fd, view) :]

    # ---- the other part

    def target(self) -> "Target":
        """The target of the server part, or of the trial; not open yet."""
        from seatrial import plugins

        if self.peer is None:
            raise DriverError(f"{PEER} is not set; no other part to connect to")
        if self.peer.kind not in plugins.targets():
            raise DriverError(f"this Seatrial has no target of kind {self.peer.kind}")
        kind = plugins.targets()[self.peer.kind]
        return kind.open(self.peer.target, kind.options.model_validate(self.peer.options))

    @contextlib.asynccontextmanager
    async def endpoint(self, port: str) -> AsyncIterator["Endpoint"]:
        """The address of a port of the server part, once it answers. The connection belongs to this process, so it
        survives the engine. The overhead of the route is recorded."""
        from seatrial.targets import TargetError
        from seatrial.targets.route import opened_inside

        if self.peer is None:
            raise DriverError(f"{PEER} is not set; no other part to connect to")
        peer = self.peer
        try:
            async with contextlib.AsyncExitStack() as opened:
                if port in peer.addresses:  # on the same target: needs no permissions and no tunnel
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
    """Waits until the driver must stop, at most this long; returns whether it must."""
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return False
    return True


@contextlib.asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs the coroutine during the block and cancels it at the end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
