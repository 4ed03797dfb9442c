"""Commands inside a container, over a WebSocket with a channel for each stream (v5.channel.k8s.io, else v4).

A command's result is known only when the server gives it on the status channel: a connection that ends without it is
an error, never a success.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

import aiohttp

from seatrial.kubernetes.connection import Connection
from seatrial.kubernetes.errors import CommandFailed, KubernetesError, status_error
from seatrial.kubernetes.objects import PODS, UNDECODABLE, ApiRequest, Status
from seatrial.kubernetes.queries import decoder

STDOUT, STDERR, STATUS = 1, 2, 3
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
# By a part of the server's message, the exit code that a shell has for a command that cannot be started.
START_FAILURES = (
    ("executable file not found", 127),
    ("no such file or directory", 127),
    ("permission denied", 126),
)


class Completed(NamedTuple):
    exit_code: int
    stdout: bytes
    stderr: bytes


class Command:
    """A command that runs in a container; made by `Pod.start`. Iterate for (channel, bytes), then read `exit_code`."""

    def __init__(self, socket: Any, what: str, request: ApiRequest) -> None:
        self._socket, self._what, self._request = socket, what, request
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
            error = self._socket.exception()
            why = f": {error}" if error else ""
            raise KubernetesError(f"{self._what}: the connection ended before the command's result came{why}")

    def result(self) -> int:
        """The exit code, after the iteration."""
        if self.exit_code is None:
            raise KubernetesError(f"{self._what}: its result has not come yet")
        return self.exit_code

    def _conclude(self, data: bytes) -> None:
        try:
            status = decoder(Status).decode(data)
        except UNDECODABLE:
            raise KubernetesError(f"{self._what}: a result that is not understood: {data[:200]!r}") from None
        causes = status.details.causes if status.details else ()
        codes = [cause.message for cause in causes if cause.reason == "ExitCode" and cause.message.isdigit()]
        if status.status == "Success" or codes:
            self.exit_code = int(codes[0]) if codes else 0
            return
        self.exit_code = next((code for part, code in START_FAILURES if part in status.message), None)
        if self.exit_code is None:
            raise status_error(self._request, status)
        self.problem = status.message


class PodContainer:
    """One container of a pod."""

    def __init__(self, connection: Connection, namespace: str, name: str, container: str = "") -> None:
        self.connection, self.namespace, self.name, self.container = connection, namespace, name, container

    def request(self, verb: str, subresource: str = "") -> ApiRequest:
        return ApiRequest(verb, PODS, self.namespace, self.name, subresource)

    async def start(self, command: Sequence[str]) -> Command:
        """A command whose streams the caller reads; use it as an async context manager."""
        request = self.request("create", "exec")
        query = [*(("command", part) for part in command), ("stdout", "true"), ("stderr", "true")]
        if self.container:
            query.append(("container", self.container))
        socket = await self.connection.websocket(request, tuple(query), PROTOCOLS)
        return Command(socket, self._title(command), request)

    async def run(
        self,
        command: Sequence[str],
        *,
        check: bool = False,
        most_bytes: int = 16 << 20,
        write: Callable[[bytes], object] | None = None,
    ) -> Completed:
        """Runs it to its end. `most_bytes` of each stream are kept, the newest; the rest is read and dropped. `write`
        takes the standard output instead. `check`: an exit code other than 0 is raised."""
        kept = {STDOUT: bytearray(), STDERR: bytearray()}
        async with await self.start(command) as running:
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
            raise CommandFailed(self._title(command), completed.exit_code, completed.stderr)
        return completed

    def _title(self, command: Sequence[str]) -> str:
        return f"{command[0]} in pod {self.namespace}/{self.name}"
