"""Plain HTTP/1.1 requests over reused connections, with only what API servers need.

Watches, logs and WebSockets use aiohttp. For short requests it would be most of the cost: a create takes the whole
client 348 us of CPU with this module, but aiohttp with orjson alone 682 us (bench/kubernetes_client.py).
"""

import asyncio
import ssl
import time
import zlib
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

import msgspec

_T = TypeVar("_T")

_HEAD_BYTES = 1 << 18
BODY_BYTES = 128 << 20  # far more than one page of a list
CLOSE_S = 1.0  # how long closing waits for connections that are still opening
_IDLE_S = 45.0  # API servers close after 90 s
SILENT_S = 5.0  # a reused connection silent for this long may be dead; the request is repeated on a new one


class BrokenConnection(Exception):
    """No answer. `sent`: the server may have acted on the request. `cause` is None if the server just closed."""

    def __init__(self, sent: bool, cause: Exception | None = None) -> None:
        super().__init__(f"{'after' if sent else 'before'} the request was sent: {cause or 'closed'}")
        self.sent, self.cause = sent, cause


class NotHttp(Exception):
    """The response is not valid HTTP."""


class RequestAttempt(msgspec.Struct):
    """One attempt at a request, by the monotonic clock. Times are None for what did not happen."""

    queued_s: float  # before waiting for a turn and a connection
    sent_s: float | None = None
    first_byte_s: float | None = None
    answered_s: float | None = None
    status: int = 0
    problem: str = ""  # reason if there is no answer
    wait_s: float = 0.0  # before the next attempt


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case; repeated headers are joined by newlines
    body: bytes


class Wire(asyncio.Protocol):
    """One connection, with one request at a time. Also used by the client of serving trials."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.idle_since = 0.0
        self.received_s = 0.0  # when the last bytes arrived
        self.closed = False
        self._waiting: asyncio.Future[Reply] | None = None
        self.attempt = RequestAttempt(0.0)  # of the current request
        self._head = b""
        self._status = 0
        self._headers: dict[str, str] = {}
        self._left = 0  # missing bytes of the body or chunk
        self._read: Callable[[bytes], None] = self._read_head
        self._parts: list[bytes] = []
        self._bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def ask(self, request: bytes) -> "asyncio.Future[Reply]":
        assert self.transport is not None
        self._head, self._parts, self._bytes, self._read = b"", [], 0, self._read_head
        self._waiting = asyncio.get_running_loop().create_future()
        self.attempt.sent_s = time.monotonic()  # before write: the answer may arrive before the next line runs
        self.transport.write(request)
        return self._waiting

    def close(self) -> None:
        self.closed = True
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:
            self.close()  # unsolicited data
            return
        self.received_s = time.monotonic()
        if self.attempt.first_byte_s is None:
            self.attempt.first_byte_s = self.received_s
        try:
            self._read(data)
        except (ValueError, IndexError, zlib.error) as error:
            self._fail(NotHttp(str(error)))

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        try:
            if self._read == self.take and error is None:
                self._done()
        except (ValueError, zlib.error) as broken:
            self._fail(NotHttp(str(broken)))
        self._fail(BrokenConnection(True, error))

    def _fail(self, error: Exception) -> None:
        self.close()
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)

    def _done(self) -> None:
        self.attempt.answered_s, self.attempt.status = time.monotonic(), self._status
        body = b"".join(self._parts)
        if self._headers.get("content-encoding") == "gzip":
            body = _unpacked(body)
        waiting, self._waiting = self._waiting, None
        if self._headers.get("connection", "").lower() == "close":
            self.close()
        if waiting is not None and not waiting.done():
            waiting.set_result(Reply(self._status, self._headers, body))

    def _read_head(self, data: bytes) -> None:
        while data:
            data = self._read_one_head(data)

    def _read_one_head(self, data: bytes) -> bytes:
        """Reads one head. Returns the bytes after an interim response (1xx); the body of a final one is read on."""
        head, end, rest = (self._head + data if self._head else data).partition(b"\r\n\r\n")
        if not end:
            self._head = head
            if len(head) > _HEAD_BYTES or not b"HTTP/1.".startswith(head[:7]):
                raise ValueError(_shown(head))
            return b""
        first, *lines = head.decode("latin-1").split("\r\n")
        if not first.startswith("HTTP/1.") or not first[9:12].isdigit():
            raise ValueError(_shown(head))
        self._status = int(first[9:12])
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            name, value = name.lower(), value.strip()
            headers[name] = f"{headers[name]}\n{value}" if name in headers else value
        self._headers, self._head = headers, b""
        if self._status < 200:
            return rest
        if "chunked" in headers.get("transfer-encoding", ""):
            self._read = self._read_chunks
            self._read_chunks(rest)
        elif "content-length" in headers:
            self._left, self._read = int(headers["content-length"]), self._read_length
            self._read_length(rest)
        elif self._status in (204, 304):
            self._done()
        else:
            self._read = self.take
            self.take(rest)
        return b""

    def take(self, data: bytes) -> None:
        """Adds a part of the body."""
        self._parts.append(data)
        self._bytes += len(data)
        if self._bytes > BODY_BYTES:
            raise ValueError(f"more than {BODY_BYTES} bytes")

    def _read_length(self, data: bytes) -> None:
        self.take(data)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("more bytes than its content-length")
        if self._left == 0:
            self._done()

    def _read_chunks(self, data: bytes) -> None:
        """`_left` counts the missing bytes of a chunk and its line end; at 0 the next length line follows."""
        data = self._head + data
        while True:
            if self._left > 2:
                taken = min(self._left - 2, len(data))
                self.take(data[:taken])
                self._left, data = self._left - taken, data[taken:]
            if self._left:
                taken = min(self._left, len(data))
                self._left, data = self._left - taken, data[taken:]
                if self._left:
                    break
            line, end, rest = data.partition(b"\r\n")
            if not end:
                if len(line) > _HEAD_BYTES:
                    raise ValueError(_shown(line))
                break
            length = int(line.partition(b";")[0], 16)
            if length < 0:
                raise ValueError(_shown(line))
            if length == 0:
                if not (rest.startswith(b"\r\n") or b"\r\n\r\n" in rest):
                    break  # trailers are incomplete
                self._head = b""
                self._done()
                return
            self._left, data = length + 2, rest
        self._head = data


class Openings:
    """Connections that are being opened. If the caller is cancelled, the connection is still opened and then closed:
    asyncio never closes the socket of one that is cancelled in its TLS handshake."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self, opening: Coroutine[Any, Any, _T], close: Callable[[_T], None]) -> _T:
        """Returns the result of `opening`; if cancelled meanwhile, `close` gets it later."""
        task = asyncio.create_task(opening)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(
                lambda done: None if done.cancelled() or done.exception() is not None else close(done.result())
            )
            raise

    async def close(self) -> None:
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await settled()


async def settled() -> None:
    """Waits until the loop has closed the transports of ended connections."""
    for _ in range(3):
        await asyncio.sleep(0)


class Pool:
    """Connections to one server at the address `place`; its certificate must be for `server_hostname`."""

    def __init__(self, place: tuple[str, int], server_hostname: str, at_once: int) -> None:
        self._place, self._server_hostname = place, server_hostname
        self._turn = asyncio.Semaphore(at_once)
        self._free: list[tuple[Wire, ssl.SSLContext | None]] = []
        self._openings = Openings()
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        for wire, _ in self._free:
            wire.close()
        self._free.clear()
        await self._openings.close()

    async def ask(
        self,
        request: bytes,
        tls: ssl.SSLContext | None,
        timeout_s: float,
        connect_s: float,
        attempt: RequestAttempt,
        repeatable: bool = False,
    ) -> Reply:
        """Raises BrokenConnection, NotHttp or TimeoutError if there is no answer. A `repeatable` request fails after
        `SILENT_S` of silence on a reused connection, which may be dead."""
        async with self._turn:
            wire = self._idle_wire(tls)
            kept = wire is not None
            if wire is None:
                wire = await self._openings.open(self._connect(tls, connect_s), Wire.close)
            wire.attempt = attempt
            answer = wire.ask(request)
            # Timers are cheaper than asyncio.timeout, which matters here.
            later = asyncio.get_running_loop().call_later
            alarms = [later(timeout_s, _ring, answer)]
            if kept and repeatable:
                alarms.append(later(SILENT_S, self._drop_silent, answer, attempt))
            try:
                reply = await answer
            except BaseException:
                wire.close()
                raise
            finally:
                for alarm in alarms:
                    alarm.cancel()
            if self._closed:
                wire.close()
            elif not wire.closed:
                wire.idle_since = time.monotonic()
                self._free.append((wire, tls))
            return reply

    def _drop_silent(self, answer: "asyncio.Future[Reply]", attempt: RequestAttempt) -> None:
        if attempt.first_byte_s is None and not answer.done():
            silent = TimeoutError(f"no response for {SILENT_S:g} s on a reused connection")
            answer.set_exception(BrokenConnection(True, silent))
            while self._free:  # the other idle connections are probably dead, too
                self._free.pop()[0].close()

    def _idle_wire(self, tls: ssl.SSLContext | None) -> Wire | None:
        """The most recently used connection; closes those idle for too long or with older credentials."""
        oldest = time.monotonic() - _IDLE_S
        while self._free:
            wire, made_with = self._free.pop()
            if not wire.closed and made_with is tls and wire.idle_since > oldest:
                return wire
            wire.close()
        return None

    async def _connect(self, tls: ssl.SSLContext | None, connect_s: float) -> Wire:
        try:
            async with asyncio.timeout(connect_s):
                _, wire = await asyncio.get_running_loop().create_connection(
                    Wire, *self._place,
                    ssl=tls, server_hostname=self._server_hostname if tls else None, happy_eyeballs_delay=0.25,
                )  # fmt: skip
        except (OSError, ssl.SSLError) as error:
            raise BrokenConnection(False, error) from error
        return wire


def _ring(answer: "asyncio.Future[Reply]") -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


def _unpacked(body: bytes) -> bytes:
    """Limits the size: a small body may decompress to a huge one."""
    unpacking = zlib.decompressobj(31)
    unpacked = unpacking.decompress(body, BODY_BYTES)
    if unpacking.unconsumed_tail:
        raise ValueError(f"more than {BODY_BYTES} bytes")
    if not unpacking.eof:
        raise ValueError("its compressed body is cut off")
    return unpacked


def _shown(data: bytes) -> str:
    return f"it begins with {data[:80]!r}"
