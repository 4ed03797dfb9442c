"""Commands inside a container, over a WebSocket with a channel for each stream (v5.channel.k8s.io, else v4).

A command's result is known only when the server says it on the status channel: a connection that ends without it is
`Incomplete`, never a success.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp
import msgspec

from seatrial.kubernetes.connection import Connection
from seatrial.kubernetes.errors import Asked, CommandFailed, Incomplete, status_error
from seatrial.kubernetes.objects import Status
from seatrial.kubernetes.resources import PODS
from seatrial.kubernetes.wire import decoder

STDOUT, STDERR, STATUS = 1, 2, 3
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
NOT_FOUND, CANNOT_RUN = 127, 126


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


async def start(connection: Connection, namespace: str, pod: str, command: Sequence[str], container: str) -> Command:
    asked = Asked("create", PODS, namespace, pod, "exec")
    query = [*(("command", part) for part in command), ("stdout", "true"), ("stderr", "true")]
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
    check: bool = False,
    most_bytes: int = 16 << 20,
    write: Callable[[bytes], object] | None = None,
) -> Completed:
    """Runs it to its end. `most_bytes` of each stream are kept, the newest; the rest is read and dropped. `write` takes
    the standard output instead."""
    kept = {STDOUT: bytearray(), STDERR: bytearray()}
    async with await start(connection, namespace, pod, command, container) as running:
        async for channel, data in running:
            if channel == STDOUT and write is not None:
                write(data)
            elif channel in kept:
                kept[channel] += data
                if len(kept[channel]) > 2 * most_bytes:
                    del kept[channel][:-most_bytes]
    stdout, stderr = (bytes(kept[channel][-most_bytes:]) for channel in (STDOUT, STDERR))
    completed = Completed(running.result(), stdout, stderr or running.problem.encode())
    if check and completed.exit_code:
        what = f"{command[0]} in pod {namespace}/{pod}"
        raise CommandFailed(what, completed.exit_code, completed.stderr[-2000:].decode(errors="replace"))
    return completed
