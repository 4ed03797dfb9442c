"""Requests of a load: sends them, and records their times and errors."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from seatrial.http.http1 import BrokenConnection, NotHttp
from seatrial.job import Unreadable, decode
from seatrial.kinds.driver import DriverError
from seatrial.kinds.serving.driver.client import Client
from seatrial.kinds.serving.driver.http import StampedWire
from seatrial.kinds.serving.driver.openai import OpenAiClient, unreachable
from seatrial.kinds.serving.driver.openai_format import DONE, Events
from seatrial.kinds.serving.generation import Failure, Mode, Request, Stopping, Trouble
from seatrial.kinds.serving.work import Lengths, LoadWork, Question


class Timed(msgspec.Struct):
    """Times and result of one request, by one monotonic clock."""

    intended_s: float
    begun_s: float = 0.0
    sent_s: float = 0.0
    first_byte_s: float | None = None
    end_s: float = 0.0
    stamps: list[float] = []  # arrival of each message with text
    counts: list[int] = []  # tokens in each of these messages
    tokens: int = 0  # reported by the server, else counted
    error: str = ""  # kind of error; empty: answered


Finished = Callable[[Timed], None]


class AskSender:
    """Sends requests of a load through any client, one task per request."""

    def __init__(self, client: Client, load: LoadWork) -> None:
        self._client, self._load = client, load
        self._tasks: set[asyncio.Task[None]] = set()

    def prepare(self, request: Request) -> Request:
        return request

    def send(self, prepared: Request, timed: Timed, finished: Finished) -> None:
        task = asyncio.create_task(self._ask(prepared, timed, finished))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, request: Request, timed: Timed, finished: Finished) -> None:
        answer = await self._client.ask(request, self._load.stream, self._load.request_s)
        times = answer.times
        timed.sent_s = times.sent_s or timed.begun_s
        timed.first_byte_s, timed.end_s = times.first_byte_s, times.ended_s or time.monotonic()
        for at_s, message in zip(times.messages_s, answer.messages, strict=True):
            if message.text or message.tokens:
                timed.stamps.append(at_s)
                timed.counts.append(len(message.tokens or ()) or 1)
        reported = answer.generations[0].generated_count if answer.generations else None
        timed.tokens = sum(timed.counts) if reported is None else reported
        timed.error = kind_of(answer.failure) if answer.failure else ""
        finished(timed)


def kind_of(failure: Failure) -> str:
    """Key for counting errors: the server's code, or the kind of failure."""
    answered = failure.trouble is Trouble.ANSWERED
    return (failure.code or "error") if answered else failure.trouble.value


class _Delta(msgspec.Struct):
    content: str | None = None


class _Logprobs(msgspec.Struct):
    content: list[msgspec.Raw] | None = None
    tokens: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    logprobs: _Logprobs | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int | None = None


class _Message(msgspec.Struct):
    """Only the fields that a load needs: it reads up to 20,000 messages a second."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: msgspec.Raw | None = None


class HttpSender:
    """Sends requests of a load over OpenAI's protocol, with callbacks instead of tasks."""

    def __init__(self, client: OpenAiClient, load: LoadWork) -> None:
        self._client, self._load = client, load
        self._connections = client.connections
        self._opening: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    def prepare(self, request: Request) -> bytes:
        """Encodes the request in advance, so that this costs no time when it starts."""
        return self._client.encode(request, self._load.stream)

    def send(self, prepared: bytes, timed: Timed, finished: Finished) -> None:
        wire = self._connections.idle()
        if wire is None:
            self._start(prepared, timed, finished)
        else:
            self._ask(wire, prepared, timed, finished)

    def _start(self, prepared: bytes, timed: Timed, finished: Finished) -> None:
        task = self._loop.create_task(self._open(prepared, timed, finished))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, prepared: bytes, timed: Timed, finished: Finished) -> None:
        try:
            wire = await self._connections.open()
        except BrokenConnection as error:
            timed.error, timed.end_s = kind_of(unreachable(error)), time.monotonic()
            finished(timed)
            return
        self._ask(wire, prepared, timed, finished)

    def _ask(self, wire: StampedWire, prepared: bytes, timed: Timed, finished: Finished) -> None:
        reused = wire.used
        answer = wire.ask(prepared)
        timed.sent_s = wire.sent_s
        alarm = self._loop.call_at(self._loop.time() + self._load.request_s, _ring, answer)

        def done(ended: "asyncio.Future[Any]") -> None:
            alarm.cancel()
            error = None if ended.cancelled() else ended.exception()
            if reused and isinstance(error, BrokenConnection) and wire.first_byte_s is None:
                self._start(prepared, timed, finished)  # the server had just closed the idle connection
                return
            if error is None:
                timed.end_s = wire.now_s
                self._connections.put_back(wire)
            else:
                timed.end_s = time.monotonic()
                wire.close()
            timed.first_byte_s = wire.first_byte_s
            self._read(wire, timed, error)
            finished(timed)

        answer.add_done_callback(done)

    def _read(self, wire: StampedWire, timed: Timed, error: BaseException | None) -> None:
        if error is not None:
            late, garbage = isinstance(error, TimeoutError), isinstance(error, NotHttp)
            timed.error = (Trouble.LATE if late else Trouble.GARBAGE if garbage else Trouble.BROKEN).value
        elif wire.status != 200:
            timed.error = str(wire.status)
        try:
            if self._load.stream and wire.status == 200:
                _read_stream(wire, timed)
            elif not timed.error:
                _count(timed, decode(b"".join(wire.parts), _Message), None)
        except Unreadable:
            timed.error = timed.error or Trouble.GARBAGE.value


def _read_stream(wire: StampedWire, timed: Timed) -> None:
    events, done = Events(), False
    for at_s, part in zip(wire.stamps, wire.parts, strict=True):
        for data in events.feed(part):
            if data == DONE:
                done = True
            else:
                _count(timed, decode(data, _Message), at_s)
    timed.tokens = timed.tokens or sum(timed.counts)
    if not done and not timed.error:
        timed.error = Trouble.GARBAGE.value


def _count(timed: Timed, message: _Message, at_s: float | None) -> None:
    if message.error is not None:
        timed.error = timed.error or "error"
    if message.usage is not None and message.usage.completion_tokens is not None:
        timed.tokens = message.usage.completion_tokens
    if not message.choices or at_s is None:
        return
    choice = message.choices[0]
    listed = choice.logprobs and (choice.logprobs.content or choice.logprobs.tokens)
    if choice.text or (choice.delta and choice.delta.content) or listed:
        timed.stamps.append(at_s)
        timed.counts.append(len(listed) if listed else 1)


def _ring(answer: "asyncio.Future[Any]") -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


_WORDS = ("time", "year", "people", "way", "day", "thing", "life", "world", "school", "state", "family", "problem")


def requests_of(load: LoadWork, questions: Sequence[Question], number: int) -> list[Request]:
    """The given number of requests, determined by the seed: cases that expect an answer, reshuffled each round, or
    generated prompts."""
    chance = random.Random(f"{load.seed} requests")
    if load.lengths is not None:
        return [_made_up(load.lengths, chance) for _ in range(number)]
    asked = [one.request for one in questions if not one.error and one.request.mode is not Mode.TOKENIZE]
    good = [request for request in asked if len(request.inputs) == 1 or request.messages]
    if not good:
        raise DriverError("no case is usable as a load; add one with a single input and an expected answer")
    found: list[Request] = []
    while len(found) < number:
        found += chance.sample(good, len(good))
    return found[:number]


def _made_up(lengths: Lengths, chance: random.Random) -> Request:
    words = " ".join(chance.choices(_WORDS, k=chance.randint(*lengths.input)))
    tokens = chance.randint(*lengths.output)
    return Request(inputs=(words,), stopping=Stopping(tokens, tokens))
