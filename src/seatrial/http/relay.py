"""Local ports that forward connections: `LocalPort`, and `Relay`, which reaches a server through a proxy."""

import asyncio
import base64
import ipaddress
import os
import ssl
from collections.abc import Mapping
from typing import Self
from urllib.parse import unquote, urlsplit


class LocalPort:
    """Listens on a free loopback port from `open` to `close`; subclasses forward each connection."""

    def __init__(self) -> None:
        self.host, self.port = "127.0.0.1", 0
        self._listening: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

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
        """Forwards one connection until it ends."""
        raise NotImplementedError

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self.carry(reader, writer)
        except asyncio.CancelledError:
            pass  # closing; asyncio's streams log a handler that raises this
        finally:
            self._open.discard(task)
            writer.close()


_BLOCK_BYTES = 1 << 16
REACH_S = 10.0
SOCKS_PORT = 1080
PORTS = {"http": 80, "https": 443}


def host_and_port(url: str, default: int = 0) -> tuple[str, int]:
    """`default` is the port for schemes other than HTTP and HTTPS."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or PORTS.get(parts.scheme, default)


def proxy_of(server: str, configured: str = "", env: Mapping[str, str] | None = None) -> str:
    """The proxy's URL or "". As in kubectl: the configured one, else by HTTPS_PROXY and NO_PROXY, never for
    loopback."""
    if configured:
        return configured
    env = os.environ if env is None else env
    name = f"{urlsplit(server).scheme}_proxy"
    proxy = env.get(name.upper()) or env.get(name) or ""
    host, port = host_and_port(server)
    address = _address(host)
    here = host == "localhost" or (address is not None and address.is_loopback)
    if not proxy or here or _is_excluded(host, port, env.get("NO_PROXY") or env.get("no_proxy") or ""):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_excluded(host: str, port: int, listed: str) -> bool:
    """Follows Go's HTTP client: `*`, domains with subdomains, addresses and CIDRs, each with an optional port."""
    for item in filter(None, (part.strip().lower() for part in listed.split(","))):
        name, _, wanted = item.rpartition(":") if item.count(":") == 1 else (item, "", "")
        if item == "*" or (wanted in ("", str(port)) and _covers(name or item, host.lower())):
            return True
    return False


def _covers(name: str, host: str) -> bool:
    address = _address(host)
    if address is not None:
        try:
            return address in ipaddress.ip_network(name.strip("[]"), strict=False)
        except ValueError:
            return False
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


class Relay(LocalPort):
    """A local port that leads to one server through a proxy: SOCKS5 (`ssh -D`) or HTTP CONNECT.

    TLS passes through unchanged, so other programs that find the port still need to pass the server's TLS.
    """

    def __init__(self, proxy: str, server: str) -> None:
        super().__init__()
        parts = urlsplit(proxy)
        self.problem = ""  # why the last connection failed
        self._scheme = parts.scheme
        self._proxy = host_and_port(proxy, SOCKS_PORT)
        self._login = (unquote(parts.username or "").encode(), unquote(parts.password or "").encode())
        self._host, self._port = host_and_port(server)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far = None
        try:
            far_reader, far = await self._reach()
            self.problem = ""
            await (self._socks if self._scheme.startswith("socks") else self._connect)(far_reader, far)
            await asyncio.gather(pump(reader, far), pump(far_reader, writer))
        except asyncio.IncompleteReadError:
            self.problem = f"the proxy {self._name} closed the connection"
        except ConnectionError as error:
            self.problem = self.problem or str(error)
        finally:
            if far is not None:
                far.close()

    @property
    def _name(self) -> str:
        return f"{self._scheme}://{self._proxy[0]}:{self._proxy[1]}"

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tls = ssl.create_default_context() if self._scheme == "https" else None
        try:
            async with asyncio.timeout(REACH_S):
                return await asyncio.open_connection(*self._proxy, ssl=tls)
        except OSError as error:
            self.problem = f"the proxy {self._name} cannot be reached: {error.strerror or error or 'no answer'}"
            raise ConnectionError(self.problem) from error

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = f"{f'[{self._host}]' if ':' in self._host else self._host}:{self._port}"
        lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
        if self._login[0]:
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(b':'.join(self._login)).decode()}")
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        first = head.partition(b"\r\n")[0].decode(errors="replace")
        if first[9:12] != "200":
            raise ConnectionError(f"the proxy {self._name} refuses to connect: {first}")

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """SOCKS5 handshake (RFC 1928), with login (RFC 1929) if the proxy's URL has a user."""
        user, password = self._login
        writer.write(b"\x05\x01\x02" if user else b"\x05\x01\x00")
        _, method = await reader.readexactly(2)
        if method == 2 and user:
            writer.write(b"\x01" + bytes([len(user)]) + user + bytes([len(password)]) + password)
            if (await reader.readexactly(2))[1]:
                raise ConnectionError(f"the proxy {self._name} refuses the login")
        elif method != 0:
            raise ConnectionError(f"the proxy {self._name} requires another login method")
        name = self._host.encode("idna")
        writer.write(b"\x05\x01\x00\x03" + bytes([len(name)]) + name + self._port.to_bytes(2, "big"))
        head = await reader.readexactly(4)
        if head[1]:
            raise ConnectionError(
                f"the proxy {self._name} cannot connect to {self._host}:{self._port} (code {head[1]})"
            )
        length = {1: 4, 4: 16}.get(head[3]) or (await reader.readexactly(1))[0]
        await reader.readexactly(length + 2)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies everything from reader to writer, then EOF."""
    while block := await reader.read(_BLOCK_BYTES):
        writer.write(block)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
