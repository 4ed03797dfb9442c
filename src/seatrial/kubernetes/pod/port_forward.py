"""A port of a pod as a port of this machine: a WebSocket for each connection (v4.channel.k8s.io)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from seatrial.kubernetes.errors import KubernetesError
from seatrial.kubernetes.pod.commands import PodContainer

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
BLOCK_BYTES = 1 << 16
# The protocol cannot say that one side has no more to send: after its own end, a client may still wait for the answer.
AFTER_END_S = 10.0


class Forward:
    """Where to connect to (`host`, `port`), and what went wrong with connections so far (`problems`)."""

    def __init__(self, pod: PodContainer, port: int) -> None:
        self.host, self.port = "127.0.0.1", 0
        self.problems: list[str] = []
        self._pod, self._pod_port = pod, port
        self._open: set[asyncio.Task[Any]] = set()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._join(reader, writer)
        except KubernetesError as error:
            self._problem(str(error))
        except (OSError, aiohttp.ClientError) as error:
            self._problem(f"the connection broke: {error}")
        except asyncio.CancelledError:
            pass  # closing; the streams' own machinery complains about a handler that is cancelled
        finally:
            self._open.discard(task)
            writer.close()

    async def close(self) -> None:
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = self._pod.request("create", "portforward")
        socket = await self._pod.connection.websocket(request, (("ports", str(self._pod_port)),), (PROTOCOL,))
        outward = asyncio.create_task(self._outward(reader, socket))
        try:
            await self._inward(socket, writer)
        finally:
            outward.cancel()
            await asyncio.gather(outward, return_exceptions=True)
            await self._pod.connection.leave(socket)

    async def _outward(self, reader: asyncio.StreamReader, socket: Any) -> None:
        with contextlib.suppress(OSError, aiohttp.ClientError):
            while block := await reader.read(BLOCK_BYTES):
                await socket.send_bytes(bytes([DATA]) + block)
            await asyncio.sleep(AFTER_END_S)
            await socket.close()

    async def _inward(self, socket: Any, writer: asyncio.StreamWriter) -> None:
        greeted: set[int] = set()
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel not in greeted:
                greeted.add(channel)  # the first of each channel names the port again
                data = data[2:]
            if not data:
                continue
            if channel == ERROR:
                self._problem(data.decode(errors="replace"))
                return
            writer.write(data)
            await writer.drain()

    def _problem(self, text: str) -> None:
        if len(self.problems) < 100:
            self.problems.append(text)


@asynccontextmanager
async def port_forward(pod: PodContainer, port: int) -> AsyncIterator[Forward]:
    """Listens on a free port of the loopback while it is open. Connections that fail close; why is in `problems`."""
    forward = Forward(pod, port)
    listening = await asyncio.start_server(forward.serve, forward.host, 0)
    forward.port = int(listening.sockets[0].getsockname()[1])
    try:
        yield forward
    finally:
        listening.close()
        await forward.close()
