"""A port of a pod as a port of this machine: a WebSocket for each connection (v4.channel.k8s.io)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from seatrial.http.relay import LocalPort
from seatrial.kubernetes.errors import KubernetesError
from seatrial.kubernetes.pod_exec import PodContainer

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
_BLOCK_BYTES = 1 << 16
# The protocol cannot say that one side has no more to send: after its own end, a client may still wait for the answer.
AFTER_END_S = 10.0


class Forward(LocalPort):
    """A port of a pod as a local one. `problem` is what went wrong with a connection last; `through` is set once one
    has come as far as the pod's node."""

    def __init__(self, pod: PodContainer, port: int) -> None:
        super().__init__()
        self.problem = ""
        self.through = asyncio.Event()
        self._pod, self._pod_port = pod, port

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._join(reader, writer)
        except KubernetesError as error:
            self.problem = str(error)
        except (OSError, aiohttp.ClientError) as error:
            self.problem = f"the connection broke: {error}"

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = self._pod.request("create", "portforward")
        socket = await self._pod.connection.websocket(request, (("ports", str(self._pod_port)),), (PROTOCOL,))

        async def send() -> None:
            with contextlib.suppress(OSError, aiohttp.ClientError):
                while block := await reader.read(_BLOCK_BYTES):
                    await socket.send_bytes(bytes([DATA]) + block)
                await asyncio.sleep(AFTER_END_S)
                await socket.close()

        outward = asyncio.create_task(send())
        try:
            await self._inward(socket, writer)
        finally:
            outward.cancel()
            await asyncio.gather(outward, return_exceptions=True)
            await self._pod.connection.leave(socket)

    async def _inward(self, socket: Any, writer: asyncio.StreamWriter) -> None:
        greeted: set[int] = set()
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel not in greeted:
                greeted.add(channel)  # the first of each channel names the port again
                self.through.set()
                data = data[2:]
            if not data:
                continue
            if channel == ERROR:
                self.problem = data.decode(errors="replace")
                return
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def port_forward(pod: PodContainer, port: int) -> AsyncIterator[Forward]:
    """Listens on a free port of the loopback while it is open. Connections that fail close; why is in `problem`."""
    forward = Forward(pod, port)
    await forward.open()
    try:
        yield forward
    finally:
        await forward.close()
