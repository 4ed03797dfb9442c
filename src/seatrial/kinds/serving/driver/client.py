"""Interface of the protocol clients: neutral requests in, neutral answers out."""

import time
from collections.abc import Mapping
from typing import Protocol

import msgspec

from seatrial.kinds.serving.generation import Answer, Failure, Trouble
from seatrial.kinds.serving.request import Request
from seatrial.kinds.serving.work import ServingWork

CERTIFICATE = "certificate"  # failure code: the server's certificate was rejected
BUSY = {"429", "503", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
# Errors that a retry cannot fix: credentials or an invalid request.
LASTING = {CERTIFICATE, "400", "401", "403", "422", "INVALID_ARGUMENT", "UNAUTHENTICATED", "PERMISSION_DENIED"}


class ModelInfo(msgspec.Struct, frozen=True):
    model_kind: str
    max_sequence_length: int
    max_new_tokens: int


class Client(Protocol):
    extra: Mapping[str, object] = {}  # fields that it adds to each request, or removes

    def encode(self, asked: Request, stream: bool, more: Mapping[str, object]) -> bytes:
        """The request for a later `ask`, with more fields, where the protocol has any. Empty if `ask` has to do it."""
        return b""

    async def ask(self, asked: Request, stream: bool, limit_s: float, data: bytes = b"") -> Answer:
        """The answer to one request. Any failure is part of the answer; none is raised."""

    async def health(self, limit_s: float) -> Failure | None:
        """Why the server reports that it is not ready, if its protocol has health checks. Servers of OpenAI's protocol
        differ in this; the first generation checks more."""
        return None

    async def describe(self, limit_s: float) -> ModelInfo | None:
        """Information on the model; None if the server has none."""
        return None

    async def close(self) -> None: ...


def make_client(work: ServingWork, url: str, token: str) -> Client:
    """The client for the protocol of the work."""
    if work.protocol == "tgis":
        from seatrial.kinds.serving.driver.tgis import TgisClient

        return TgisClient(work, url, token)
    from seatrial.kinds.serving.driver.openai import OpenAiClient

    return OpenAiClient(work, url, token)


def busy_for_s(failure: Failure) -> float | None:
    """Retry delay that a busy server asks for, if it gives one."""
    if failure.trouble is Trouble.ANSWERED and failure.code in BUSY:
        return failure.retry_after_s
    return None


class Clock:
    """Measures the time left of a limit."""

    def __init__(self, limit_s: float) -> None:
        self.begun_s = time.monotonic()
        self._limit_s = limit_s

    @property
    def left_s(self) -> float:
        return self.begun_s + self._limit_s - time.monotonic()

    @property
    def past_s(self) -> float:
        return time.monotonic() - self.begun_s
