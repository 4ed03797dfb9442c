"""Client for TGIS's gRPC protocol. Failures are part of the answer, not raised."""

import asyncio
import time
from operator import methodcaller
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from seatrial.extras import install_command
from seatrial.kinds.driver import DriverError
from seatrial.kinds.serving.driver.client import CERTIFICATE, Client, ModelInfo
from seatrial.kinds.serving.generation import Answer, Failure, Generation, Times, Trouble
from seatrial.kinds.serving.request import Mode, Request
from seatrial.kinds.serving.work import ServingWork, Tls

try:
    import grpc

    from seatrial.kinds.serving.driver import tgis_format
    from seatrial.kinds.serving.driver.tgis_format import Messages, enum_word
except ModuleNotFoundError as error:
    raise DriverError(f"protocol `tgis` needs gRPC ({error}); run `{install_command('grpc')}`") from error

_SERVICE = f"/{tgis_format.GENERATION}.GenerationService"
_CERTIFICATE_SIGNS = ("certificate", "ssl_error_ssl", "handshake failed", "peer name")
_CONNECT_SIGNS = ("failed to connect", "connections to all backends failing", "dns")
_BROKEN_SIGNS = ("socket closed", "connection reset", "stream removed", "goaway", "broken pipe", "rst_stream")


class TgisClient(Client):
    def __init__(self, work: ServingWork, url: str, token: str) -> None:
        parts = urlsplit(url if "//" in url else f"//{url}")
        secure = work.tls is not None or parts.scheme in ("https", "grpcs")
        address = f"{parts.hostname}:{parts.port or (443 if secure else 80)}"
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.enable_retries", 0),  # the caller decides on retries
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        if work.tls is not None and work.tls.name:
            options.append(("grpc.ssl_target_name_override", work.tls.name))
        if secure:
            self._channel = grpc.aio.secure_channel(address, _credentials(work.tls or Tls()), options)
        else:
            self._channel = grpc.aio.insecure_channel(address, options)
        self._metadata = [(name.lower(), value) for name, value in work.headers.items()]
        self._metadata += [("authorization", f"Bearer {token}")] if token else []
        self._model = work.model
        unary, stream = self._channel.unary_unary, self._channel.unary_stream
        self._generate = _method(unary, f"{_SERVICE}/Generate", Messages["BatchedGenerationResponse"])
        self._tokenize = _method(unary, f"{_SERVICE}/Tokenize", Messages["BatchedTokenizeResponse"])
        self._model_info = _method(unary, f"{_SERVICE}/ModelInfo", Messages["ModelInfoResponse"])
        self._health = _method(unary, f"/{tgis_format.HEALTH}.Health/Check", Messages["HealthCheckResponse"])
        self._stream = _method(stream, f"{_SERVICE}/GenerateStream", Messages["GenerationResponse"])

    async def ask(self, asked: Request, stream: bool, limit_s: float, data: bytes = b"") -> Answer:
        if asked.messages or asked.path:
            text = "protocol `tgis` has no chat messages; use a `prompt` in the format of the model"
            if not asked.messages:
                text = "protocol `tgis` cannot send a case in OpenAI's format; write it with `request`"
            return Answer(failure=Failure("", text, Trouble.NOT_ASKED))
        if stream:
            return await self._ask_stream(asked, limit_s)
        sent_s = time.monotonic()
        if asked.mode is Mode.TOKENIZE:
            method, request = self._tokenize, tgis_format.tokenize_request(asked, self._model)
        else:
            method, request = self._generate, tgis_format.generate_request(asked, self._model, False)
        try:
            reply = await method(request, timeout=limit_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            return Answer(failure=_failure(error, sent_s, limit_s), times=Times(sent_s, None, time.monotonic()))
        ended_s = time.monotonic()
        times = Times(sent_s, ended_s, ended_s)
        if len(reply.responses) != len(asked.inputs):
            text = f"{len(reply.responses)} answers came for {len(asked.inputs)} inputs"
            return Answer(failure=Failure("OK", text, Trouble.GARBAGE), times=times)
        if asked.mode is Mode.TOKENIZE:
            found = tuple(tgis_format.tokenization_of(one, asked) for one in reply.responses)
            return Answer(tokenizations=found, times=times)
        return Answer(tuple(tgis_format.generation_of(one, asked, False) for one in reply.responses), times=times)

    async def _ask_stream(self, asked: Request, limit_s: float) -> Answer:
        messages: list[Generation] = []
        stamps: list[float] = []
        failure = None
        sent_s = time.monotonic()
        request = tgis_format.generate_request(asked, self._model, True)
        call = self._stream(request, timeout=limit_s, metadata=self._metadata)
        try:
            async for message in call:
                stamps.append(time.monotonic())
                messages.append(tgis_format.generation_of(message, asked, True))
        except grpc.aio.AioRpcError as error:
            failure = _failure(error, sent_s, limit_s)
        except asyncio.CancelledError:
            call.cancel()
            raise
        times = Times(sent_s, stamps[0] if stamps else None, time.monotonic(), tuple(stamps))
        return Answer(failure=failure, messages=tuple(messages), times=times)

    async def health(self, limit_s: float) -> Failure | None:
        """Asks gRPC's health service, which is optional."""
        sent_s = time.monotonic()
        asked = Messages["HealthCheckRequest"](service="")
        try:
            reply = await self._health(asked, timeout=limit_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            return None if error.code() is grpc.StatusCode.UNIMPLEMENTED else _failure(error, sent_s, limit_s)
        status = enum_word(reply, "status")
        return None if status == "SERVING" else Failure("UNAVAILABLE", f"health status {status}")

    async def describe(self, limit_s: float) -> ModelInfo | None:
        asked = Messages["ModelInfoRequest"](model_id=self._model)
        try:
            info = await self._model_info(asked, timeout=limit_s, metadata=self._metadata)
        except grpc.aio.AioRpcError:
            return None
        return ModelInfo(enum_word(info, "model_kind"), info.max_sequence_length, info.max_new_tokens)

    async def close(self) -> None:
        await self._channel.close()


def _method(make: Any, path: str, answer: Any) -> Any:
    serialize = methodcaller("SerializeToString")
    return make(path, request_serializer=serialize, response_deserializer=answer.FromString)


def _credentials(tls: Tls) -> Any:
    if not tls.verify:
        advice = "set `tls.ca`, and `tls.name` if the name differs"
        raise DriverError(f"gRPC always verifies the server's certificate; {advice}")
    try:
        ca = Path(tls.ca).read_bytes() if tls.ca else None
    except OSError as error:
        raise DriverError(f"cannot use the TLS files: {error}") from error
    shown = ((tls.key or tls.cert).encode(), tls.cert.encode()) if tls.cert else (None, None)
    return grpc.ssl_channel_credentials(ca, *shown)


def _failure(error: Any, sent_s: float, limit_s: float) -> Failure:
    """Distinguishes errors returned by the server from failed connections and timeouts."""
    code, text = error.code(), error.details() or ""
    details = f"{text} {error.debug_error_string() or ''}".lower()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and time.monotonic() - sent_s >= limit_s - 0.05:
        return Failure(code.name, "timed out before the answer was complete", Trouble.LATE)
    if code.name in ("UNAVAILABLE", "UNKNOWN", "INTERNAL", "CANCELLED"):
        if any(sign in details for sign in _BROKEN_SIGNS):
            return Failure(code.name, f"the connection broke: {text}", Trouble.BROKEN)
        if any(sign in details for sign in _CONNECT_SIGNS):
            certificate = any(sign in details for sign in _CERTIFICATE_SIGNS)
            what = "server certificate rejected" if certificate else "no connection"
            return Failure(CERTIFICATE if certificate else "", f"{what}: {text}", Trouble.UNREACHABLE)
    if code is grpc.StatusCode.INTERNAL and "deserializ" in details:
        return Failure(code.name, f"invalid gRPC message: {text}", Trouble.GARBAGE)
    return Failure(code.name, text, Trouble.ANSWERED, _retry_after_s(error))


def _retry_after_s(error: Any) -> float | None:
    for name, value in error.trailing_metadata() or ():
        if name in ("retry-after", "grpc-retry-pushback-ms"):
            try:
                return max(0.0, float(value) / (1000 if name.endswith("ms") else 1))
            except ValueError:
                return None
    return None
