"""HTTP/1.1 requests to a model server over reused connections, with the arrival time of each part of an answer.

Times are taken where the bytes arrive, not where the waiting task wakes up, so that delays of the event loop do not
count for the server."""

import asyncio
import ssl
import tempfile
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from seatrial.http.http1 import BrokenConnection, NotHttp, Openings, Reply, RequestAttempt, Wire
from seatrial.kinds.driver import DriverError
from seatrial.kinds.serving.work import Tls

_CONNECT_S = 10.0
_IDLE_S = 4.0  # common servers close after 5 s


class Received(msgspec.Struct, frozen=True):
    """A response, complete or not; `stamps` are the arrival times of `parts`."""

    sent_s: float
    first_byte_s: float | None
    last_s: float
    status: int
    headers: dict[str, str]
    parts: list[bytes]
    stamps: list[float]


class StampedWire(Wire):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.stamps: list[float] = []

    def ask(self, request: bytes) -> "asyncio.Future[Reply]":
        self.stamps, self.attempt = [], RequestAttempt(0.0)
        return super().ask(request)

    def take(self, data: bytes) -> None:
        self.stamps.append(self.received_s)
        super().take(data)

    @property
    def received(self) -> Received:
        sent_s, first_s = self.attempt.sent_s or 0.0, self.attempt.first_byte_s
        return Received(sent_s, first_s, self.received_s, self._status, self._headers, self._parts, self.stamps)


def _tls_context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca or None)
        # Since Python 3.13 the default rejects CAs without key usage, which `openssl req -x509` makes and curl accepts.
        # Whether a server is trusted must not depend on the Python version.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if tls.cert:
            with tempfile.NamedTemporaryFile() as file:  # readable only by its owner, deleted once it is read
                file.write(f"{tls.cert}\n{tls.key}\n".encode())
                file.flush()
                context.load_cert_chain(file.name)
    except (OSError, ssl.SSLError) as error:
        raise DriverError(f"cannot use the TLS files: {error}") from error
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Connections:
    """Connections to one server, one for each concurrent request."""

    def __init__(self, url: str, tls: Tls | None, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url if "//" in url else f"//{url}")
        if not parts.hostname:
            raise DriverError(f"invalid server address {url!r}; use for example http://127.0.0.1:8000")
        secure = tls is not None or parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port or (443 if secure else 80)
        self._tls = _tls_context(tls or Tls()) if secure else None
        self._name = (tls.name if tls else "") or parts.hostname
        lines = {"Host": parts.netloc.rpartition("@")[2], "User-Agent": "seatrial", "Accept": "*/*", **headers}
        self._path = parts.path.rstrip("/")
        self._lines = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._free: list[StampedWire] = []
        self._openings = Openings()

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        kind = "Content-Type: application/json\r\n" if method == "POST" else ""
        head = f"{method} {self._path}{path} HTTP/1.1\r\n{self._lines}{kind}Content-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def idle(self) -> StampedWire | None:
        """The most recently used free connection, if any."""
        oldest = time.monotonic() - _IDLE_S
        while self._free:
            wire = self._free.pop()
            if not wire.closed and wire.idle_since > oldest:
                return wire
            wire.close()
        return None

    async def open(self) -> StampedWire:
        """Opens a new connection. Raises BrokenConnection."""
        return await self._openings.open(self._connect(), Wire.close)

    async def get(self, path: str, limit_s: float) -> tuple[int, bytes]:
        """Status and body of a GET on a new connection; status 0 if there is no answer."""
        try:
            wire = await self.open()
            try:
                async with asyncio.timeout(limit_s):
                    reply = await wire.ask(self.request("GET", path))
            finally:
                wire.close()
        except (BrokenConnection, NotHttp, TimeoutError):
            return 0, b""
        return reply.status, reply.body

    def put_back(self, wire: StampedWire) -> None:
        if not wire.closed:
            wire.idle_since = time.monotonic()
            self._free.append(wire)

    async def close(self) -> None:
        for wire in self._free:
            wire.close()
        self._free.clear()
        await self._openings.close()

    async def _connect(self) -> StampedWire:
        name = self._name if self._tls else None
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, wire = await asyncio.get_running_loop().create_connection(
                    StampedWire, self._host, self._port, ssl=self._tls, server_hostname=name
                )
        except TimeoutError as error:
            raise BrokenConnection(False, OSError(f"no connection within {_CONNECT_S:g} s")) from error
        except (OSError, ssl.SSLError) as error:
            raise BrokenConnection(False, error) from error
        return wire
