"""A way to the API server that breaks on command: everything that goes through it is cut, again and again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from cluster.cluster import Cluster


class CutLine:
    """A relay on the loopback. `cuts` counts the connections that were cut."""

    def __init__(self, host: str, port: int) -> None:
        self.cuts = 0
        self._far = (host, port)
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._far)
        except OSError:
            writer.close()
            return
        both = {writer, far_writer}
        self._open |= both
        pumps = [asyncio.create_task(_pump(reader, far_writer)), asyncio.create_task(_pump(far_reader, writer))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        self._open -= both
        for one in both:
            one.transport.abort()

    def cut(self) -> None:
        self.cuts += len(self._open) // 2
        for writer in list(self._open):
            writer.transport.abort()

    async def close(self) -> None:
        self.cut()
        await asyncio.gather(*self._serving, return_exceptions=True)
        for _ in range(3):  # until the transports have closed
            await asyncio.sleep(0)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while block := await reader.read(1 << 16):
            writer.write(block)
            await writer.drain()


@contextlib.asynccontextmanager
async def cut_line(cluster: Cluster, folder: Path) -> AsyncIterator[tuple[Path, CutLine]]:
    """A kubeconfig that leads through the relay."""
    server = urlsplit(cluster.url)
    assert server.hostname
    assert server.port
    line = CutLine(server.hostname, server.port)
    listening = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    config["clusters"][0]["cluster"] |= {"server": f"https://127.0.0.1:{port}", "tls-server-name": server.hostname}
    path = folder / "cut-kubeconfig"
    path.write_text(yaml.safe_dump(config))
    try:
        yield path, line
    finally:
        listening.close()
        await line.close()
