"""A server that answers with bytes of a test's choice, in pieces: what real servers do when something is wrong with
them."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

Answering = Callable[[asyncio.StreamWriter, dict[str, Any]], Awaitable[None]]


@asynccontextmanager
async def server(answer: Answering) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Its address, and the bodies of the requests that it got: each a connection of its own, or kept."""
    bodies: list[dict[str, Any]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                bodies.append(json.loads(await reader.readexactly(length)))
                await answer(writer, bodies[-1])
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", bodies
    finally:
        listening.close()


def head(content: str, *lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Type: {content}", *lines, "", ""]).encode()


async def whole(writer: asyncio.StreamWriter, body: bytes, content: str = "application/json", *lines: str) -> None:
    writer.write(head(content, f"Content-Length: {len(body)}", *lines) + body)
    await writer.drain()


async def in_chunks(writer: asyncio.StreamWriter, pieces: list[bytes], content: str = "text/event-stream") -> None:
    """Each piece is a chunk, and a segment of its own."""
    writer.write(head(content, "Transfer-Encoding: chunked"))
    for piece in pieces:
        await writer.drain()
        await asyncio.sleep(0)
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    await writer.drain()


def event(text: str, **fields: Any) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": None, **fields}
    return b"data: " + json.dumps({"choices": [choice]}, ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
END = b"0\r\n\r\n"
