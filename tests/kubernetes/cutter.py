"""A way to a server that is cut, frozen or slow, wherever the bytes happen to stand. TLS goes through it untouched."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from seatrial.kubernetes import Access


@dataclass
class Cutter:
    """`least_bytes` to `most_bytes` flow towards the client, then both ends are reset; 0 is never."""

    access: Access  # through the cutter
    least_bytes: int = 0
    most_bytes: int = 0
    cuts: int = 0
    delay_s: float = 0.0  # that each block takes, in either direction
    source: random.Random = field(default_factory=lambda: random.Random(7))
    open_ends: set[asyncio.StreamWriter] = field(default_factory=set)
    frozen: set[asyncio.StreamWriter] = field(default_factory=set)

    def budget(self) -> float:
        return self.source.randint(self.least_bytes, self.most_bytes) if self.most_bytes else float("inf")

    def cut(self) -> None:
        """Every connection that is open now."""
        self.cuts += bool(self.open_ends)
        for end in self.open_ends:
            end.transport.abort()

    def freeze(self) -> int:
        """Every connection that is open now stays so, and nothing goes through it any more. How many they are."""
        frozen = self.open_ends - self.frozen
        self.frozen |= frozen
        return len(frozen) // 2


@asynccontextmanager
async def cutting(access: Access) -> AsyncIterator[Cutter]:
    parts = urlsplit(access.server)
    assert parts.hostname is not None
    tasks: set[asyncio.Task[None]] = set()

    async def flow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: float) -> None:
        while budget > 0 and (block := await reader.read(1 << 14)):
            if writer in cutter.frozen:
                continue
            await asyncio.sleep(cutter.delay_s)
            writer.write(block[: int(min(budget, len(block)))])
            await writer.drain()
            budget -= len(block)
        cutter.cuts += budget <= 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        ends = [writer]
        try:
            far_reader, far = await asyncio.open_connection(parts.hostname, parts.port)
            ends.append(far)
            cutter.open_ends.update(ends)
            flows = [
                asyncio.ensure_future(flow(reader, far, float("inf"))),
                asyncio.ensure_future(flow(far_reader, writer, cutter.budget())),
            ]
            await asyncio.wait(flows, return_when=asyncio.FIRST_COMPLETED)
            for one in flows:
                one.cancel()
            await asyncio.gather(*flows, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            cutter.open_ends.difference_update(ends)
            for end in ends:
                end.transport.abort()
                end.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    name = access.tls_server_name or parts.hostname
    cutter = Cutter(replace(access, server=f"https://127.0.0.1:{port}", tls_server_name=name))
    try:
        yield cutter
    finally:
        listening.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
