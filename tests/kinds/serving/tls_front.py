"""Speaks TLS for a server that does not: the wheel of llama.cpp is built without it. Standard library only, for pods.

Usage: tls_front.py PORT CERT KEY CA. It listens on SEATRIAL_PORT, wants certificates of clients that CA signed, and
hands all that comes to PORT."""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path


@asynccontextmanager
async def behind_tls(
    url: str, cert: Path, key: Path, ca: Path | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[str]:
    """The address of a front for the server at `url`. `ca` signed the certificates of clients; None: they need none."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the authority's certificate is as plain as openssl makes it
    context.load_cert_chain(cert, key)
    if ca is not None:
        context.load_verify_locations(ca)
        context.verify_mode = ssl.CERT_REQUIRED

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        except OSError:  # not up yet
            return writer.close()
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    front = await asyncio.start_server(handle, host, port, ssl=context)
    try:
        yield f"https://127.0.0.1:{front.sockets[0].getsockname()[1]}"
    finally:
        front.close()


async def main() -> None:
    to, *paths = sys.argv[1:]
    cert, key, ca = map(Path, paths)
    async with behind_tls(f":{to}", cert, key, ca, "0.0.0.0", int(os.environ["SEATRIAL_PORT"])):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
