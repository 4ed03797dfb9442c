"""The connection to one server: requests and streams, with retries that never repeat an action unknowingly.

1. 429, and 5xx with Retry-After, are retried when the server says. Other 5xx only if `repeatable`.
2. Failures to connect are retried until `patience_s` is over.
3. If the connection broke after the request was sent, it is retried only if `repeatable`; otherwise the error says that
   the action may have been done.
4. A 401 is retried once with renewed credentials.
5. With `retry=False` nothing else is retried; every attempt is in `attempts`, for measurements.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode, urlsplit
from weakref import WeakSet

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from seatrial.http.http1 import BrokenConnection, NotHttp, Openings, Pool, Reply, RequestAttempt, settled
from seatrial.http.relay import Relay, host_and_port, proxy_of
from seatrial.kubernetes.access import Access
from seatrial.kubernetes.credentials import Credentials
from seatrial.kubernetes.errors import (
    PATIENCE_S,
    ApiError,
    Closed,
    KubernetesError,
    RequestFailure,
    Unreachable,
    api_error,
    backoff_s,
    delay_after_refusal_s,
    failure,
)
from seatrial.kubernetes.objects import ApiRequest

JSON = "application/json"
USER_AGENT = "seatrial"
REQUEST_S = 60.0  # time limit sent to the server; we wait MARGIN_S longer
_CONNECT_S = 15.0
AT_ONCE = 64  # default limit of concurrent requests; watches, logs and streams are not counted
STREAM_BUFFER_BYTES = 1 << 18
HEARTBEAT_S = 30.0
NEEDS_UPGRADE = "pgrade request required"  # the answer to the same request without a WebSocket
MARGIN_S = 5.0
MOST_HEADS = 256
# A peer that vanished silently (a cut cable, a dropped NAT entry) is noticed after 20 + 4 x 5 s.
KEEPALIVE = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
FAILURES = (aiohttp.ClientError, asyncio.TimeoutError, OSError)


class Connection:
    """Keeps connections to one server until it is closed."""

    def __init__(self, access: Access, patience_s: float = PATIENCE_S, at_once: int = AT_ONCE) -> None:
        self.access, self.patience_s, self._at_once = access, patience_s, at_once
        self.credentials = Credentials(access)
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

    async def close(self) -> None:
        """Closes it for good. Requests in progress are cut and raise `Closed`."""
        self._closed = True
        pool, streams = self._pool, self._streams
        self._pool = self._streams = None
        if pool is not None:
            await pool.close()
        for response in list(self._going_on):
            self.hang_up(response)  # wakes its reader, which closing the session does not
        if streams is not None:
            await streams.close()
        await self._openings.close()
        if self._relay is not None:
            await self._relay.close()
            self._relay = None

    async def request(
        self,
        request: ApiRequest,
        query: Iterable[tuple[str, str]] = (),
        *,
        method: str = "",
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        repeatable: bool = True,
        timeout_s: float = REQUEST_S,
        patience_s: float | None = None,
        retry: bool = True,
        attempts: list[RequestAttempt] | None = None,
    ) -> Reply:
        """Returns a 2xx answer; anything else is raised. `method` overrides that of the verb."""
        method = method or request.method
        target = _target(request.path, (*query, ("timeout", f"{max(1, round(timeout_s))}s")))
        until = time.monotonic() + (self.patience_s if patience_s is None else patience_s)
        attempt, uncertain, renewed = 0, False, False
        while True:
            attempt, tried = attempt + 1, RequestAttempt(time.monotonic())
            if attempts is not None:
                attempts.append(tried)
            pool = self._pool
            if pool is None or self.credentials.stale:
                pool = (await self._open())[0]
            generation = self.credentials.generation
            try:
                head = self._head(method, target, accept, content_type, body is not None)
                sent = head + (b"Content-Length: %d\r\n\r\n%b" % (len(body), body) if body is not None else b"\r\n")
                again = repeatable and retry
                reply = await pool.ask(sent, self.credentials.tls, timeout_s + MARGIN_S, _CONNECT_S, tried, again)
            except (BrokenConnection, NotHttp, TimeoutError) as error:
                broken = self._failure(error)
                tried.problem = broken.text
                uncertain = uncertain or (broken.sent and method != "GET")
                if broken.sent and not again:
                    doubt = f"the request may have taken effect: {request}: {broken.text} ({self.access.server})"
                    raise Unreachable(f"{doubt}; check with kubectl before you retry") from error
                delay = backoff_s(attempt)
                if broken.lasting or time.monotonic() + delay > (until if retry else 0.0):
                    raise self._unreachable(request, broken) from error
            else:
                if reply.status < 300:
                    return reply
                if reply.status == 401 and not renewed and await self.credentials.renew(generation):
                    renewed = True
                    continue
                refused = self._refusal(request, reply.status, reply.headers, reply.body)
                if not isinstance(refused, ApiError):
                    raise refused
                uncertain = uncertain or (reply.status in (500, 502, 504) and method != "GET")
                refused.uncertain = uncertain
                delay = delay_after_refusal_s(refused, reply.headers, attempt, until if retry else 0.0, repeatable)
            tried.wait_s = delay
            await asyncio.sleep(delay)

    async def stream(
        self, request: ApiRequest, query: Iterable[tuple[str, str]], accept: str = JSON
    ) -> aiohttp.ClientResponse:
        """Opens a streaming answer in one attempt. The caller reads and closes it, and detects silence."""
        renewed = False
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
        while True:
            (_, session), generation = await self._open(), self.credentials.generation
            headers = self._headers({"Accept": accept, "Accept-Encoding": "identity"})
            url = URL(self._base + _target(request.path, tuple(query)), encoded=True)
            try:
                asking = session.get(
                    url, headers=headers, timeout=limits, allow_redirects=False, **self._stream_options()
                )
                async with asyncio.timeout(REQUEST_S):
                    response: aiohttp.ClientResponse = await self._openings.open(asking, self.hang_up)
                if response.status < 300:
                    self._going_on.add(response)
                    return response
                async with response:
                    data = await response.read()
            except FAILURES as error:
                raise self._unreachable(request, self._failure(error)) from error
            if response.status != 401 or renewed or not await self.credentials.renew(generation):
                raise self._refusal(request, response.status, response.headers, data)
            renewed = True

    async def read(self, request: ApiRequest, response: aiohttp.ClientResponse) -> bytes:
        """The next block of a stream; empty at its end."""
        try:
            return await response.content.readany()
        except FAILURES as error:
            raise self._unreachable(request, self._failure(error)) from error

    async def websocket(
        self, request: ApiRequest, query: tuple[tuple[str, str], ...], protocols: tuple[str, ...]
    ) -> Any:
        """Opens a WebSocket. aiohttp's error lacks the reason of a refusal, so the same request is sent once more
        without it, which also renews expired credentials."""
        for _ in range(2):
            _, session = await self._open()
            try:
                asking = session.ws_connect(
                    URL(self._base + _target(request.path, query), encoded=True),
                    protocols=protocols,
                    headers=self._headers({}),
                    max_msg_size=0,
                    heartbeat=HEARTBEAT_S,
                    timeout=aiohttp.ClientWSTimeout(ws_close=5),
                    **self._stream_options(),
                )
                return await self._openings.open(asking, lambda made: _shut(made.get_extra_info("socket")))
            except aiohttp.WSServerHandshakeError as error:
                status = error.status
            except FAILURES as error:
                raise self._unreachable(request, self._failure(error)) from error
            try:
                await self.request(request, query, method="GET", patience_s=0)
            except ApiError as error:
                if NEEDS_UPGRADE not in error.message:
                    raise
            if status != 401:
                break
        raise KubernetesError(
            f"cannot {request}: the server allows the request but refused its WebSocket ({status}); "
            "check that proxies and load balancers in front of it pass WebSockets"
        )

    @staticmethod
    def hang_up(response: aiohttp.ClientResponse) -> None:
        """Ends a stream and aborts its connection: TLS would wait for a closing message that a busy server may never
        send."""
        if response.connection is not None and response.connection.transport is not None:
            response.connection.transport.abort()
        response.close()

    @staticmethod
    async def leave(websocket: Any) -> None:
        """Closes a WebSocket, then aborts its connection."""
        wire = websocket.get_extra_info("socket")
        try:
            await websocket.close()
        finally:
            _shut(wire)
        await settled()

    def _refusal(self, request: ApiRequest, status: int, headers: Mapping[str, str], data: bytes) -> KubernetesError:
        if 300 <= status < 400:
            data = f"the server redirects to {headers.get('location', '')}; is a login proxy in front of it?".encode()
        return api_error(request, status, data, self.credentials.source)

    def _failure(self, error: BaseException) -> RequestFailure:
        """Prefers the relay's problem: with a proxy we only see a closed connection."""
        found = failure(error)
        problem = self._relay.problem if self._relay is not None else ""
        return RequestFailure(problem, found.sent) if problem else found

    def _unreachable(self, request: ApiRequest, broken: RequestFailure) -> Unreachable:
        return Unreachable(f"cannot {request}: {broken.text} ({self.access.server})", lasting=broken.lasting)

    def _head(self, method: str, target: str, accept: str, content_type: str, has_body: bool) -> bytes:
        """The head of a request without its length. Cached, because many requests differ only in their body."""
        key = (self.credentials.generation, method, target, accept, content_type, has_body)
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) > MOST_HEADS:
                self._heads.clear()
            headers = self._headers({"Host": self._host, "Accept": accept, "User-Agent": USER_AGENT})
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
        return CIMultiDict((*self.credentials.headers.items(), *headers.items()))

    def _stream_options(self) -> dict[str, Any]:
        tls = self.credentials.tls
        return {} if tls is None else {"ssl": tls, "server_hostname": self._server_name}

    async def _open(self) -> tuple[Pool, aiohttp.ClientSession]:
        if self.credentials.stale:
            await self.credentials.refresh()
        async with self._opening:
            if self._closed:
                raise Closed("the client is closed")
            if self._pool is None or self._streams is None:
                address, parts = host_and_port(self.access.server), urlsplit(self.access.server)
                if proxy := proxy_of(self.access.server, self.access.proxy_url):
                    self._relay = Relay(proxy, self.access.server)
                    await self._relay.open()
                    address = self._relay.host, self._relay.port
                    self._base = f"{parts.scheme}://{self._relay.address}{parts.path}"
                self._pool = Pool(address, self._server_name, self._at_once)
                self._streams = aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(
                        limit=0, keepalive_timeout=45, ttl_dns_cache=30, socket_factory=_socket
                    ),
                    headers={"User-Agent": USER_AGENT, "Host": self._host},
                    cookie_jar=aiohttp.DummyCookieJar(),
                    read_bufsize=STREAM_BUFFER_BYTES,
                )
            return self._pool, self._streams


@lru_cache(maxsize=1024)
def _target(path: str, query: tuple[tuple[str, str], ...]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def _shut(wire: Any) -> None:
    if wire is not None:
        with contextlib.suppress(OSError):
            wire.shutdown(socket.SHUT_RDWR)
