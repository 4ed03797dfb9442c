"""Commands inside a container, over a WebSocket with a channel for each stream (v5.channel.k8s.io, else v4).

A command's result is known only when the server says it on the status channel: a connection that ends without it is
`Incomplete`, never a success.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp
import msgspec

from seatrial.kubernetes.connection import Connection
from seatrial.kubernetes.errors import Asked, CommandFailed, Incomplete, status_error
from seatrial.kubernetes.objects import Status
from seatrial.kubernetes.resources import PODS
from seatrial.kubernetes.wire import decoder

STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
NOT_FOUND, CANNOT_RUN = 127, 126
FRAME_BYTES = 1 << 16


class Completed(NamedTuple):
    exit_code: int
    stdout: bytes
    stderr: bytes


class Command:
    """A command that runs in a container; made by `Pod.start`. Iterate for (channel, bytes), then read `exit_code`."""

    def __init__(self, socket: Any, what: str, asked: Asked) -> None:
        self._socket, self._what, self._asked = socket, what, asked
        self.exit_code: int | None = None
        self.problem = ""  # why it could not be started, when it could not

    async def __aenter__(self) -> "Command":
        return self

    async def __aexit__(self, *_: object) -> None:
        await Connection.leave(self._socket)

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(view), FRAME_BYTES):
            await self._write(bytes([STDIN]) + view[start : start + FRAME_BYTES])

    async def end_input(self) -> None:
        """The command reads the end of its input. Servers before 1.30 cannot tell it that."""
        if self._socket.protocol != PROTOCOLS[0]:
            raise Incomplete(self._what, "this server cannot end a command's input (it speaks v4.channel.k8s.io)")
        await self._write(bytes([CLOSE, STDIN]))

    async def _write(self, frame: bytes) -> None:
        try:
            await self._socket.send_bytes(frame)
        except (aiohttp.ClientError, OSError) as error:
            raise Incomplete(self._what, f"the connection broke while its input was sent: {error}") from error

    async def __aiter__(self) -> AsyncIterator[tuple[int, bytes]]:
        async for message in self._socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel == STATUS:
                self._conclude(data)
            elif data:
                yield channel, data
        if self.exit_code is None:
            raise Incomplete(self._what, f"the connection ended before the command's result came{self._why()}")

    def result(self) -> int:
        """The exit code, after the iteration."""
        if self.exit_code is None:
            raise Incomplete(self._what, "its result has not come yet")
        return self.exit_code

    def _why(self) -> str:
        error = self._socket.exception()
        return f": {error}" if error else ""

    def _conclude(self, data: bytes) -> None:
        try:
            status = decoder(Status).decode(data)
        except msgspec.DecodeError:
            raise Incomplete(self._what, f"a result that is not understood: {data[:200]!r}") from None
        if status.status == "Success":
            self.exit_code = 0
            return
        codes = [
            cause.message for cause in (status.details.causes if status.details else ()) if cause.reason == "ExitCode"
        ]
        if codes and codes[0].isdigit():
            self.exit_code = int(codes[0])
            return
        if "executable file not found" in status.message or "no such file or directory" in status.message:
            self.exit_code, self.problem = NOT_FOUND, status.message
            return
        if "permission denied" in status.message:
            self.exit_code, self.problem = CANNOT_RUN, status.message
            return
        raise status_error(self._asked, status)


async def start(
    connection: Connection, namespace: str, pod: str, command: Sequence[str], container: str, stdin: bool
) -> Command:
    asked = Asked("create", PODS, namespace, pod, "exec")
    query = [("command", part) for part in command]
    query += [("stdout", "true"), ("stderr", "true")]
    if stdin:
        query.append(("stdin", "true"))
    if container:
        query.append(("container", container))
    path = PODS.path(namespace, pod, "exec")
    socket = await connection.websocket(asked, path, urlencode(query), PROTOCOLS)
    return Command(socket, f"{command[0]} in pod {namespace}/{pod}", asked)


async def run(
    connection: Connection,
    namespace: str,
    pod: str,
    command: Sequence[str],
    container: str = "",
    *,
    stdin: bytes | None = None,
    check: bool = False,
    within_s: float | None = None,
    most_bytes: int = 16 << 20,
) -> Completed:
    """Runs it to its end. `most_bytes` of each stream are kept, the newest; the rest is read and dropped."""
    what = f"{command[0]} in pod {namespace}/{pod}"
    kept = {STDOUT: bytearray(), STDERR: bytearray()}
    try:
        async with asyncio.timeout(within_s):
            running = await start(connection, namespace, pod, command, container, stdin is not None)
            async with running:
                await _collect(running, stdin, kept, most_bytes)
    except TimeoutError:
        raise Incomplete(what, f"did not end within {within_s:g} s; it may still run there") from None
    stdout, stderr = (bytes(kept[channel][-most_bytes:]) for channel in (STDOUT, STDERR))
    completed = Completed(running.result(), stdout, stderr or running.problem.encode())
    if check and completed.exit_code:
        raise CommandFailed(what, completed.exit_code, completed.stderr[-2000:].decode(errors="replace"))
    return completed


async def _collect(running: Command, stdin: bytes | None, kept: dict[int, bytearray], most_bytes: int) -> None:
    sender = asyncio.create_task(_feed(running, stdin)) if stdin is not None else None
    try:
        async for channel, data in running:
            if channel in kept:
                kept[channel] += data
                if len(kept[channel]) > 2 * most_bytes:
                    del kept[channel][:-most_bytes]
    finally:
        if sender is not None:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)


async def _feed(running: Command, data: bytes) -> None:
    await running.send(data)
    await running.end_input()
