"""The wire: one request at a time over kept connections, with retries that never do a thing twice unknowingly.

1. 429, and 5xx that say when to come back, are asked again when the server says. Other 5xx only if `repeatable`.
2. A connection that never came about is tried again until `patience_s` is over.
3. A connection that broke after the request went out is asked again only if `repeatable`; else `Uncertain` is raised.
4. A 401 is answered once with renewed credentials.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit
from weakref import WeakSet

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from seatrial.kubernetes.access import Access
from seatrial.kubernetes.credentials import Credentials
from seatrial.kubernetes.errors import (
    ApiError,
    Asked,
    Closed,
    Invalid,
    ProtocolError,
    Unauthorized,
    Uncertain,
    Unreachable,
    api_error,
)
from seatrial.kubernetes.failures import PATIENCE_S, Failure, backoff_s, delay_after_refusal_s, failure
from seatrial.kubernetes.http1 import Broken, NotHttp, Openings, Pool, settled
from seatrial.kubernetes.proxies import Relay, proxy_of

JSON = "application/json"
REQUEST_S = 60.0  # the server is told to give up by then, and a little later we do
CONNECT_S = 15.0
AT_ONCE = 64  # requests; watches, logs and streams are not counted
STREAM_BUFFER_BYTES = 1 << 18
HEARTBEAT_S = 30.0
NEEDS_UPGRADE = "pgrade request required"  # what a server says to the same request without a WebSocket
MARGIN_S = 5.0
MOST_HEADS = 256
# A peer that is gone without a word (a cut cable, a dropped NAT entry) is noticed after this.
KEEPALIVE_IDLE_S, KEEPALIVE_EVERY_S, KEEPALIVE_TIMES = 20, 5, 4
FAILURES = (aiohttp.ClientError, asyncio.TimeoutError, OSError)


class Answer(NamedTuple):
    body: bytes
    uncertain: bool  # an earlier try of the same request may have been done already


class Connection:
    """Keeps connections to one server. Use as an async context manager, or `close` it."""

    def __init__(self, access: Access, patience_s: float = PATIENCE_S, agent: str = "seatrial") -> None:
        self.access = access
        self.credentials = Credentials(access)
        self.patience_s = patience_s
        self._agent = agent
        parts = urlsplit(access.server)
        self._host, self._prefix = parts.netloc, parts.path
        self._server_name = access.tls_server_name or parts.hostname or ""
        self._base = access.server
        self._pool: Pool | None = None
        self._streams: aiohttp.ClientSession | None = None
        self._relay: Relay | None = None
        self._heads: dict[tuple[object, ...], bytes] = {}
        self._opening = asyncio.Lock()
        self._closed = False
        self._going_on: WeakSet[aiohttp.ClientResponse] = WeakSet()
        self._openings = Openings()

    async def __aenter__(self) -> "Connection":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """For good. What goes on is cut, and told by `Closed`."""
        self._closed = True
        pool, streams = self._pool, self._streams
        self._pool = self._streams = None
        if pool is not None:
            await pool.close()
        for response in list(self._going_on):
            self.hang_up(response)  # wakes who reads from it, which closing the session does not
        if streams is not None:
            await streams.close()
        await self._openings.close()
        if self._relay is not None:
            await self._relay.close()
            self._relay = None

    async def request(
        self,
        asked: Asked,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        repeatable: bool = True,
        timeout_s: float = REQUEST_S,
        patience_s: float | None = None,
    ) -> Answer:
        """The body of a 2xx answer; anything else is raised."""
        target = _target(path, (*(query or {}).items(), ("timeout", f"{max(1, round(timeout_s))}s")))
        until = time.monotonic() + (self.patience_s if patience_s is None else patience_s)
        attempt, uncertain, renewed = 0, False, False
        while True:
            attempt += 1
            pool = self._pool
            if pool is None or self.credentials.stale:
                pool = (await self._open())[0]
            generation = self.credentials.generation
            try:
                head = self._head(method, target, accept, content_type, body is not None)
                request = head + (b"Content-Length: %d\r\n\r\n%b" % (len(body), body) if body is not None else b"\r\n")
                reply = await pool.ask(request, self.credentials.tls, timeout_s + MARGIN_S, CONNECT_S)
            except (Broken, NotHttp, TimeoutError) as error:
                wrong = self._failure(error)
                uncertain = uncertain or (wrong.sent and method != "GET")
                delay = self._delay_after_break(asked, wrong, attempt, until, repeatable)
            else:
                if reply.status < 300:
                    return Answer(reply.body, uncertain)
                refused = self._refusal(asked, reply.status, reply.headers, reply.body)
                if reply.status == 401 and not renewed and await self.credentials.renew(generation):
                    renewed = True
                    continue
                uncertain = uncertain or (reply.status in (500, 502, 504) and method != "GET")
                refused.uncertain = uncertain
                delay = delay_after_refusal_s(refused, reply.headers, attempt, until, repeatable)
            await asyncio.sleep(delay)

    async def stream(
        self, asked: Asked, path: str, query: Mapping[str, str], accept: str = JSON, silence_s: float | None = None
    ) -> aiohttp.ClientResponse:
        """An answer that goes on, one try. The caller closes it. `silence_s`: how long nothing may come."""
        renewed = False
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s)
        while True:
            (_, session), generation = await self._open(), self.credentials.generation
            headers = self._headers({"Accept": accept, "Accept-Encoding": "identity"})
            url = URL(self._base + _target(path, tuple(query.items())), encoded=True)
            try:
                asking = session.get(
                    url, headers=headers, timeout=limits, allow_redirects=False, **self._stream_options()
                )
                response: aiohttp.ClientResponse = await self._openings.open(_answer(asking), self.hang_up)
                if response.status < 300:
                    self._going_on.add(response)
                    return response
                async with response:
                    data = await response.read()
            except FAILURES as error:
                wrong = self._failure(error)
                raise Unreachable(self.access.server, asked, wrong.words, wrong.lasting) from error
            said = {name.lower(): value for name, value in response.headers.items()}
            if response.status != 401 or renewed or not await self.credentials.renew(generation):
                raise self._refusal(asked, response.status, said, data)
            renewed = True

    async def websocket(self, asked: Asked, path: str, query: str, protocols: tuple[str, ...]) -> Any:
        """An open WebSocket. Why one was refused is not in aiohttp's error: the same is asked once more without it."""
        renewed = False
        while True:
            (_, session), generation = await self._open(), self.credentials.generation
            try:
                asking = session.ws_connect(
                    URL(f"{self._base}{path}?{query}", encoded=True),
                    protocols=protocols,
                    headers=self._headers({}),
                    max_msg_size=0,
                    heartbeat=HEARTBEAT_S,
                    timeout=aiohttp.ClientWSTimeout(ws_close=5),
                    **self._stream_options(),
                )
                return await self._openings.open(_answer(asking), _cut)
            except aiohttp.WSServerHandshakeError as error:
                status = error.status
            except FAILURES as error:
                wrong = self._failure(error)
                raise Unreachable(self.access.server, asked, wrong.words, wrong.lasting) from error
            if status != 401 or renewed or not await self.credentials.renew(generation):
                break
            renewed = True
        try:
            await self.request(asked, "GET", f"{path}?{query}", patience_s=0)
        except Invalid as error:
            if NEEDS_UPGRADE not in error.message:
                raise
        raise ProtocolError(asked, f"the server refuses the WebSocket ({status}), though it allows what is asked")

    @staticmethod
    def hang_up(response: aiohttp.ClientResponse) -> None:
        """End a stream, and its connection at once: TLS would wait for a farewell that a busy server never sends."""
        if response.connection is not None and response.connection.transport is not None:
            response.connection.transport.abort()
        response.close()

    @staticmethod
    async def leave(websocket: Any) -> None:
        """The same of a WebSocket, which says farewell itself first."""
        wire = websocket.get_extra_info("socket")
        try:
            await websocket.close()
        finally:
            _shut(wire)
        await settled()

    def _refusal(self, asked: Asked, status: int, headers: Mapping[str, str], data: bytes) -> ApiError:
        if 300 <= status < 400:
            data = f"the server sends us elsewhere: {headers.get('location', '')}; is a login proxy before it?".encode()
        error = api_error(asked, status, data)
        if isinstance(error, Unauthorized):
            error.source = self.credentials.source
            error.args = (error.text(),)
        return error

    def _failure(self, error: BaseException) -> Failure:
        """Of a proxy we see no more than that it closes; our relay knows why."""
        wrong = failure(error)
        problem = self._relay.problem if self._relay is not None else ""
        return Failure(problem, wrong.sent) if problem else wrong

    def _head(self, method: str, target: str, accept: str, content_type: str, has_body: bool) -> bytes:
        """The head of a request but for its length, kept: many requests differ in their body alone."""
        key = (self.credentials.generation, method, target, accept, content_type, has_body)
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) > MOST_HEADS:
                self._heads.clear()
            headers = self._headers({"Host": self._host, "Accept": accept, "User-Agent": self._agent})
            if has_body:
                headers["Content-Type"] = content_type
            elif self.access.compression:
                headers["Accept-Encoding"] = "gzip"
            lines = [
                f"{method} {self._prefix}{target} HTTP/1.1",
                *(f"{name}: {text}" for name, text in headers.items()),
            ]
            head = self._heads[key] = "\r\n".join([*lines, ""]).encode()
        return head

    def _headers(self, headers: dict[str, str]) -> CIMultiDict[str]:
        made = self.credentials.headers.copy()
        made.update(headers)
        return made

    def _stream_options(self) -> dict[str, Any]:
        tls = self.credentials.tls
        if tls is None:
            return {}
        return {"ssl": tls, "server_hostname": self._server_name}

    async def _open(self) -> tuple[Pool, aiohttp.ClientSession]:
        if self.credentials.stale:
            await self.credentials.refresh()
        async with self._opening:
            if self._closed:
                raise Closed
            if self._pool is None or self._streams is None:
                place = await self._place()
                self._pool = Pool(place, self._server_name, AT_ONCE)
                self._streams = self._new_session()
            return self._pool, self._streams

    async def _place(self) -> tuple[str, int]:
        """Where to connect to: the server, or our relay to the proxy before it."""
        parts = urlsplit(self.access.server)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        self._base, proxy = self.access.server, proxy_of(self.access)
        if proxy:
            self._relay = Relay(proxy, self.access.server)
            host, port = "127.0.0.1", await self._relay.open()
            self._base = f"{parts.scheme}://{host}:{port}{parts.path}"
        return host, port

    def _new_session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=45, ttl_dns_cache=30, socket_factory=_socket)
        return aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": self._agent, "Host": self._host},
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=STREAM_BUFFER_BYTES,
            trust_env=False,
        )

    def _delay_after_break(self, asked: Asked, wrong: Failure, attempt: int, until: float, repeatable: bool) -> float:
        if wrong.sent and not repeatable:
            raise Uncertain(self.access.server, asked, wrong.words)
        delay = backoff_s(attempt)
        if wrong.lasting or time.monotonic() + delay > until:
            raise Unreachable(self.access.server, asked, wrong.words, wrong.lasting)
        return delay


@lru_cache(maxsize=1024)
def _target(path: str, query: tuple[tuple[str, str], ...]) -> str:
    if not query:
        return path
    return f"{path}{'&' if '?' in path else '?'}{urlencode(query)}"


def _socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_EVERY_S),
        ("TCP_KEEPCNT", KEEPALIVE_TIMES),
    ):
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


async def _answer(asking: Any) -> Any:
    """What a request of aiohttp gives, as a coroutine."""
    return await asking


def _cut(websocket: Any) -> None:
    """Of a WebSocket that nobody wants any more."""
    _shut(websocket.get_extra_info("socket"))


def _shut(wire: Any) -> None:
    if wire is not None:
        with contextlib.suppress(OSError):
            wire.shutdown(socket.SHUT_RDWR)
