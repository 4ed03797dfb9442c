"""Client for OpenAI's HTTP protocol. Failures are part of the answer, not raised."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import msgspec

from seatrial.http.http1 import BrokenConnection, NotHttp
from seatrial.kinds.serving.driver import openai_format
from seatrial.kinds.serving.driver.client import CERTIFICATE, ModelInfo
from seatrial.kinds.serving.driver.http import Connections, Received, StampedWire
from seatrial.kinds.serving.generation import Answer, Failure, Generation, Request, Times, Trouble, stream_answer
from seatrial.kinds.serving.work import ServingWork


class OpenAiClient:
    def __init__(self, work: ServingWork, url: str, token: str) -> None:
        headers = {**work.headers, **({"Authorization": f"Bearer {token}"} if token else {})}
        self.connections = Connections(url, work.tls, headers)
        self._model, self.extra = work.model, work.extra

    def encode(self, asked: Request, stream: bool, more: Mapping[str, object] | None = None) -> bytes:
        """The request as bytes, with more fields that `server.extra` may change. Raises ProtocolError."""
        extra = {**(more or {}), **self.extra}
        body = msgspec.json.encode(openai_format.body_of(asked, self._model, stream, extra))
        return self.connections.request("POST", openai_format.path_of(asked), body)

    async def ask(self, asked: Request, stream: bool, limit_s: float) -> Answer:
        """The complete answer. Retries once if a reused connection breaks before the first byte: servers may close an
        idle connection just when it is used again."""
        try:
            data = self.encode(asked, stream)
        except openai_format.ProtocolError as error:
            return Answer(failure=Failure("", str(error), Trouble.NOT_ASKED))
        until_s = time.monotonic() + limit_s
        wire = self.connections.idle()
        if wire is not None:
            answer = await self._exchange(wire, data, asked, stream, until_s)
            stale = answer.failure is not None and answer.failure.trouble is Trouble.BROKEN
            if not stale or wire.first_byte_s is not None:
                return answer
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + until_s - time.monotonic()):
                wire = await self.connections.open()
        except TimeoutError:
            return Answer(failure=Failure("", f"no connection within {limit_s:g} s", Trouble.UNREACHABLE))
        except BrokenConnection as error:
            return Answer(failure=unreachable(error))
        return await self._exchange(wire, data, asked, stream, until_s)

    async def health(self, limit_s: float) -> Failure | None:
        return None  # servers differ in this; the first generation checks more

    async def describe(self, limit_s: float) -> ModelInfo | None:
        return None

    async def close(self) -> None:
        await self.connections.close()

    async def _exchange(self, wire: StampedWire, data: bytes, asked: Request, stream: bool, until_s: float) -> Answer:
        error: Exception | None = None
        try:
            async with asyncio.timeout(until_s - time.monotonic()):
                await wire.ask(data)
        except (BrokenConnection, NotHttp, TimeoutError) as failed:
            error = failed
            wire.close()
        except BaseException:
            wire.close()
            raise
        else:
            self.connections.put_back(wire)
        return read_answer(wire.received, asked, stream, error)


def read_answer(got: Received, asked: Request, stream: bool, error: Exception | None) -> Answer:
    """Decodes a response, complete or not."""
    times = Times(got.sent_s, got.first_byte_s, got.last_s if error is None else time.monotonic())
    broken = _broken(got, error) if error is not None else None
    if broken is None and got.status != 200:
        after_s = _retry_after_s(got.headers.get("retry-after", ""))
        return Answer(failure=openai_format.refusal_of(got.status, b"".join(got.parts), after_s), times=times)
    kind = got.headers.get("content-type", "").partition(";")[0].strip().lower()
    wanted = "text/event-stream" if stream else "application/json"
    if broken is None and kind != wanted:
        begin = b"".join(got.parts)[:120].decode("utf-8", "replace")
        text = f"content type {kind or 'not stated'} (expected {wanted}); the body begins with {begin!r}"
        return Answer(failure=Failure("200", text, Trouble.GARBAGE), times=times)
    if stream and got.status == 200 and got.first_byte_s is not None:
        return _read_stream(got, times, broken)
    if broken is not None:
        return Answer(failure=broken, times=times)
    try:
        return msgspec.structs.replace(openai_format.answer_of(b"".join(got.parts), asked), times=times)
    except openai_format.ProtocolError as garbage:
        return Answer(failure=Failure("200", str(garbage), Trouble.GARBAGE), times=times)


def _read_stream(got: Received, times: Times, broken: Failure | None) -> Answer:
    """Reads a stream message by message, with the time of each, including those before a failure."""
    events, messages, stamps = openai_format.Events(), list[Generation](), list[float]()
    failure, done = broken, False
    try:
        for at_s, part in zip(got.stamps, got.parts, strict=True):
            for data in events.feed(part):
                if done:
                    raise openai_format.ProtocolError("events came after [DONE]")
                if data == openai_format.DONE:
                    done = True
                elif isinstance(message := openai_format.message_of(data), Failure):
                    failure = failure or message
                else:
                    messages.append(message)
                    stamps.append(at_s)
        if failure is None and (events.rest or not done):
            rest = f" after {events.rest[:80]!r}" if events.rest else ""
            raise openai_format.ProtocolError(f"the stream ended without [DONE]{rest}")
    except openai_format.ProtocolError as garbage:
        failure = failure or Failure("200", str(garbage), Trouble.GARBAGE)
    return stream_answer(messages, failure, msgspec.structs.replace(times, messages_s=tuple(stamps)))


def _broken(got: Received, error: Exception) -> Failure:
    size = sum(map(len, got.parts))
    if isinstance(error, TimeoutError):
        so_far = f"{size} bytes" if got.first_byte_s is not None else "nothing"
        return Failure("", f"timed out before the answer was complete ({so_far} received)", Trouble.LATE)
    if isinstance(error, NotHttp):
        return Failure("", f"invalid HTTP response: {error}", Trouble.GARBAGE)
    cause = error.cause if isinstance(error, BrokenConnection) else None
    how = f"the connection broke ({cause})" if cause else "the server closed the connection"
    where = f"after {size} bytes of the answer" if got.first_byte_s is not None else "before any response"
    return Failure("", f"{how} {where}", Trouble.BROKEN)


def unreachable(error: BrokenConnection) -> Failure:
    """The failure for a connection that could not be opened."""
    cause = error.cause
    if isinstance(cause, ssl.SSLCertVerificationError):
        text = f"server certificate rejected: {cause.verify_message or cause}"
        return Failure(CERTIFICATE, text, Trouble.UNREACHABLE)
    if isinstance(cause, ssl.SSLError):
        return Failure("", f"TLS handshake failed: {cause.reason or cause}", Trouble.UNREACHABLE)
    return Failure("", f"no connection: {cause}", Trouble.UNREACHABLE)


def _retry_after_s(text: str) -> float | None:
    """Parses `Retry-After`: seconds or a date."""
    if text.strip().isdigit():
        return float(text)
    with contextlib.suppress(ValueError, TypeError):
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    return None
