"""A port of this machine that leads elsewhere: through a proxy, or into a pod."""

import asyncio


class LocalPort:
    """Listens on a free port of the loopback from `open` to `close`; a subclass carries each connection on."""

    def __init__(self) -> None:
        self.host, self.port = "127.0.0.1", 0
        self._listening: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def open(self) -> None:
        self._listening = await asyncio.start_server(self._serve, self.host, 0)
        self.port = int(self._listening.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        raise NotImplementedError

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self.carry(reader, writer)
        except asyncio.CancelledError:
            pass  # closing; the streams' own machinery complains about a handler that is cancelled
        finally:
            self._open.discard(task)
            writer.close()
