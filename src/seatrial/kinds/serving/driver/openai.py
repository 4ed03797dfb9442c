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
from seatrial.kinds.serving.driver.client import CERTIFICATE, Client
from seatrial.kinds.serving.driver.http import Connections, Received, StampedWire
from seatrial.kinds.serving.generation import Answer, Failure, Generation, Times, Trouble
from seatrial.kinds.serving.request import RESPONSES, Request
from seatrial.kinds.serving.work import ServingWork


class OpenAiClient(Client):
    def __init__(self, work: ServingWork, url: str, token: str) -> None:
        headers = {**work.headers, **({"Authorization": f"Bearer {token}"} if token else {})}
        self.connections = Connections(url, work.tls, headers)
        self._model = work.model
        self.extra = work.extra

    def encode(self, asked: Request, stream: bool, more: Mapping[str, object]) -> bytes:
        with contextlib.suppress(openai_format.ProtocolError):
            return self._encode(asked, stream, more)
        return b""

    def _encode(self, asked: Request, stream: bool, more: Mapping[str, object]) -> bytes:
        """The request with more fields, which `server.extra` may change. Raises ProtocolError."""
        path = openai_format.path_of(asked)
        if asked.text is not None:
            return self.connections.request("POST", path, asked.text.encode())
        if asked.path and not asked.body:
            return self.connections.request("GET", path)
        body = openai_format.body_of(asked, self._model, stream, {**more, **self.extra})
        return self.connections.request("POST", path, msgspec.json.encode(body))

    async def ask(self, asked: Request, stream: bool, limit_s: float, data: bytes = b"") -> Answer:
        """The complete answer. Retries once if a reused connection breaks before the first byte: servers may close an
        idle connection just when it is used again."""
        until_s = time.monotonic() + limit_s
        try:
            data = data or self._encode(asked, stream, {})
            for _ in range(asked.cancelled):
                await self._cancel(self._encode(asked, True, {}), until_s)
        except openai_format.ProtocolError as error:
            return Answer(failure=Failure("", str(error), Trouble.NOT_ASKED))
        except BrokenConnection as error:
            return Answer(failure=_unreachable(error))
        wire = self.connections.idle()
        if wire is not None:
            answer = await self._exchange(wire, data, asked, stream, until_s)
            stale = answer.failure is not None and answer.failure.trouble is Trouble.BROKEN
            if not stale or wire.attempt.first_byte_s is not None:
                return answer
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + until_s - time.monotonic()):
                wire = await self.connections.open()
        except TimeoutError:
            return Answer(failure=Failure("", f"no connection within {limit_s:g} s", Trouble.UNREACHABLE))
        except BrokenConnection as error:
            return Answer(failure=_unreachable(error))
        return await self._exchange(wire, data, asked, stream, until_s)

    async def _cancel(self, data: bytes, until_s: float) -> None:
        """Closes the connection at the first byte of the answer."""
        wire = await self.connections.open()
        answer = wire.ask(data)
        answer.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        while wire.attempt.first_byte_s is None and not answer.done() and time.monotonic() < until_s:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        wire.close()

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
        return _read_answer(wire.received, asked, stream, error)


def _read_answer(got: Received, asked: Request, stream: bool, error: Exception | None) -> Answer:
    """Decodes a response, complete or not."""
    times = Times(got.sent_s, got.first_byte_s, got.last_s if error is None else time.monotonic())
    broken = _broken(got, error) if error is not None else None
    if broken is None and got.status != 200:
        after_s = _retry_after_s(got.headers.get("retry-after", ""))
        body = b"".join(got.parts)
        return Answer(failure=openai_format.refusal_of(got.status, body, after_s), times=times, raw=(body,))
    kind = got.headers.get("content-type", "").partition(";")[0].strip().lower()
    wanted = "text/event-stream" if stream else "application/json"
    if broken is None and kind != wanted:
        begin = b"".join(got.parts)[:120].decode("utf-8", "replace")
        text = f"content type {kind or 'not stated'} (expected {wanted}); the body begins with {begin!r}"
        return Answer(failure=Failure("200", text, Trouble.GARBAGE), times=times)
    if stream and got.status == 200 and got.first_byte_s is not None:
        return _read_stream(got, asked, times, broken)
    if broken is not None:
        return Answer(failure=broken, times=times)
    try:
        body = b"".join(got.parts)
        return msgspec.structs.replace(openai_format.answer_of(body, asked), times=times, raw=(body,))
    except openai_format.ProtocolError as garbage:
        return Answer(failure=Failure("200", str(garbage), Trouble.GARBAGE), times=times)


def _read_stream(got: Received, asked: Request, times: Times, broken: Failure | None) -> Answer:
    """Reads a stream message by message, with the time of each, including those before a failure."""
    events, messages, stamps, raw = openai_format.Events(), list[Generation](), list[float](), list[bytes]()
    failure, done = broken, False
    responses = asked.path == RESPONSES  # its last event has a type of its own, and no [DONE] follows
    message_of = openai_format.response_message_of if responses else openai_format.message_of
    try:
        for at_s, part in zip(got.stamps, got.parts, strict=True):
            for data in events.feed(part):
                if done and not (responses and data == openai_format.DONE):
                    raise openai_format.ProtocolError("events came after [DONE]")
                if data == openai_format.DONE:
                    done = True
                    continue
                raw.append(data)
                if isinstance(message := message_of(data), Failure):
                    failure = failure or message
                else:
                    messages.append(message)
                    stamps.append(at_s)
                    done = done or (responses and message.stop_reason is not None)
        if failure is None and (events.rest or not done):
            rest = f" after {events.rest[:80]!r}" if events.rest else ""
            last = "response.completed" if responses else "[DONE]"
            raise openai_format.ProtocolError(f"the stream ended without {last}{rest}")
    except openai_format.ProtocolError as garbage:
        failure = failure or Failure("200", str(garbage), Trouble.GARBAGE)
    times = msgspec.structs.replace(times, messages_s=tuple(stamps))
    return Answer(failure=failure, messages=tuple(messages), times=times, raw=tuple(raw))


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


def _unreachable(error: BrokenConnection) -> Failure:
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
