"""What the client of each protocol is: one way to ask, and answers in neutral words."""

import time
from typing import Protocol

import msgspec

from seatrial.kinds.serving.generation import Answer, Failure, Request, Trouble
from seatrial.kinds.serving.work import ServingWork

CERTIFICATE = "certificate"  # code of a failure: the server's is refused
BUSY = {"429", "503", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
# What asking again will not change: who we are, or what is asked.
LASTING = {CERTIFICATE, "400", "401", "403", "422", "INVALID_ARGUMENT", "UNAUTHENTICATED", "PERMISSION_DENIED"}


class ModelInfo(msgspec.Struct, frozen=True):
    model_kind: str
    max_sequence_length: int
    max_new_tokens: int


class Client(Protocol):
    async def ask(self, asked: Request, stream: bool, limit_s: float) -> Answer:
        """All that comes back of one request, a failure of any sort included. Raises nothing for it."""

    async def health(self, limit_s: float) -> Failure | None:
        """Why the server says that it cannot be asked, where its protocol has a word for that."""

    async def describe(self, limit_s: float) -> ModelInfo | None:
        """What the server says of its model; nothing where it does not."""

    async def close(self) -> None: ...


def make_client(work: ServingWork, url: str, token: str) -> Client:
    """Of the protocol that the work names."""
    if work.protocol == "tgis":
        from seatrial.kinds.serving.driver.tgis import TgisClient

        return TgisClient(work, url, token)
    from seatrial.kinds.serving.driver.openai import OpenAiClient

    return OpenAiClient(work, url, token)


def busy_for_s(failure: Failure) -> float | None:
    """After how long the server wants to be asked again, if it says so."""
    if failure.trouble is Trouble.ANSWERED and failure.code in BUSY:
        return failure.retry_after_s
    return None


class Clock:
    """What is left of a limit."""

    def __init__(self, limit_s: float) -> None:
        self.begun_s = time.monotonic()
        self._limit_s = limit_s

    @property
    def left_s(self) -> float:
        return self.begun_s + self._limit_s - time.monotonic()

    @property
    def past_s(self) -> float:
        return time.monotonic() - self.begun_s
