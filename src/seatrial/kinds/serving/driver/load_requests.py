"""Requests of a load: sends them, and records their times and errors."""

import asyncio
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from seatrial.http.http1 import BrokenConnection, NotHttp
from seatrial.job import Unreadable, decode
from seatrial.kinds.driver import DriverError
from seatrial.kinds.serving.driver.client import Client
from seatrial.kinds.serving.driver.http import Received, StampedWire
from seatrial.kinds.serving.driver.load_check import Length, length_of, length_problem
from seatrial.kinds.serving.driver.openai import OpenAiClient, unreachable
from seatrial.kinds.serving.driver.openai_format import DONE, Events
from seatrial.kinds.serving.generation import Answer, Failure, Generation, Mode, Request, Stopping, StopReason, Trouble
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
    keep: bool = False  # the answer, for checking
    answer: Received | Answer | None = None


Finished = Callable[[Timed], None]


class AskSender:
    """Sends requests of a load through any client, one task per request."""

    def __init__(self, client: Client, load: LoadWork) -> None:
        self._client, self._load = client, load
        self._tasks: set[asyncio.Task[None]] = set()

    def prepare(self, question: Question) -> Question:
        return question

    def send(self, prepared: Question, timed: Timed, finished: Finished) -> None:
        task = asyncio.create_task(self._ask(prepared, timed, finished))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, question: Question, timed: Timed, finished: Finished) -> None:
        answer = await self._client.ask(question.request, self._load.stream, self._load.request_s)
        times = answer.times
        timed.sent_s = times.sent_s or timed.begun_s
        timed.first_byte_s, timed.end_s = times.first_byte_s, times.ended_s or time.monotonic()
        texts = [] if answer.messages else [one.text for one in answer.generations]
        for at_s, message in zip(times.messages_s, answer.messages, strict=True):
            if (message.text or message.tokens) and not message.input_count:  # TGIS begins with the input
                timed.stamps.append(at_s)
                timed.counts.append(len(message.tokens or ()) or 1)
                texts.append(message.text)
        whole = answer.generations[0] if answer.generations else Generation()
        reported = whole.generated_count
        timed.tokens = sum(timed.counts) if reported is None else reported
        if answer.failure:
            timed.error = kind_of(answer.failure)
        else:
            finish = "length" if whole.stop_reason is StopReason.MAX_TOKENS else None
            length, size = length_of(question, self._load, {}), sum(len((text or "").encode()) for text in texts)
            timed.error = length_problem(length, reported, 0, len(timed.stamps), size, finish)
        timed.answer = answer if timed.keep else None
        finished(timed)


def kind_of(failure: Failure) -> str:
    """Key for counting errors: the server's code, or the kind of failure."""
    answered = failure.trouble is Trouble.ANSWERED
    return (failure.code or "error") if answered else failure.trouble.value


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # the same field of other servers
    tool_calls: list[msgspec.Raw] | None = None


class _Logprobs(msgspec.Struct):
    content: list[msgspec.Raw] | None = None
    tokens: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Details(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int | None = None
    completion_tokens_details: _Details | None = None


class _Message(msgspec.Struct):
    """Only the fields that a load needs: it reads up to 20,000 messages a second."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None  # `Raw | None` would only accept null


class HttpSender:
    """Sends requests of a load over OpenAI's protocol, with callbacks instead of tasks."""

    def __init__(self, client: OpenAiClient, load: LoadWork) -> None:
        self._client, self._load = client, load
        self._connections = client.connections
        self._opening: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    def prepare(self, question: Question) -> "_Prepared":
        """Encodes the request in advance, so that this costs no time when it starts."""
        # Few servers know `min_tokens`; without it, the length of an answer would be that of the model's choice.
        extra = {} if self._load.lengths is None else {"ignore_eos": True}
        data = self._client.encode(question.request, self._load.stream, extra)
        return _Prepared(data, length_of(question, self._load, self._client.extra))

    def send(self, prepared: "_Prepared", timed: Timed, finished: Finished) -> None:
        wire = self._connections.idle()
        if wire is None:
            self._start(prepared, timed, finished)
        else:
            self._ask(wire, prepared, timed, finished)

    def _start(self, prepared: "_Prepared", timed: Timed, finished: Finished) -> None:
        task = self._loop.create_task(self._open(prepared, timed, finished))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, prepared: "_Prepared", timed: Timed, finished: Finished) -> None:
        try:
            wire = await self._connections.open()
        except BrokenConnection as error:
            timed.error, timed.end_s = kind_of(unreachable(error)), time.monotonic()
            finished(timed)
            return
        self._ask(wire, prepared, timed, finished)

    def _ask(self, wire: StampedWire, prepared: "_Prepared", timed: Timed, finished: Finished) -> None:
        reused = wire.used
        answer = wire.ask(prepared.data)
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
            self._read(wire.received, timed, error, prepared.length)
            finished(timed)

        answer.add_done_callback(done)

    def _read(self, got: Received, timed: Timed, error: BaseException | None, length: Length) -> None:
        if error is not None:
            late, garbage = isinstance(error, TimeoutError), isinstance(error, NotHttp)
            timed.error = (Trouble.LATE if late else Trouble.GARBAGE if garbage else Trouble.BROKEN).value
        elif got.status != 200:
            timed.error = str(got.status)
        elif timed.keep:
            timed.answer = got
        seen = _Seen()
        try:
            if self._load.stream and got.status == 200:
                _read_stream(got, timed, seen)
            elif not timed.error:
                _count(timed, decode(b"".join(got.parts), _Message), None, seen)
        except Unreadable:
            timed.error = timed.error or Trouble.GARBAGE.value
        timed.tokens = sum(timed.counts) if seen.reported is None else seen.reported
        if not timed.error:
            timed.error = length_problem(length, seen.reported, seen.hidden, len(timed.stamps), seen.size, seen.finish)


class _Prepared(msgspec.Struct, frozen=True):
    data: bytes
    length: Length


class _Seen(msgspec.Struct):
    """What the messages of an answer add up to."""

    size: float = 0  # bytes of text; infinite for tool calls, which have tokens without text
    reported: int | None = None
    hidden: int = 0
    finish: str | None = None


def _read_stream(got: Received, timed: Timed, seen: _Seen) -> None:
    events, done = Events(), False
    for at_s, part in zip(got.stamps, got.parts, strict=True):
        for data in events.feed(part):
            if data == DONE:
                done = True
            else:
                _count(timed, decode(data, _Message), at_s, seen)
    if not done and not timed.error:
        timed.error = Trouble.GARBAGE.value


def _count(timed: Timed, message: _Message, at_s: float | None, seen: _Seen) -> None:
    if message.error is not None:
        timed.error = timed.error or "error"
    usage = message.usage
    if usage is not None and usage.completion_tokens is not None:
        seen.reported = usage.completion_tokens
        if usage.completion_tokens_details is not None:
            seen.hidden = usage.completion_tokens_details.reasoning_tokens or 0
    if not message.choices:
        return
    choice = message.choices[0]
    if choice.finish_reason is not None:
        seen.finish = choice.finish_reason
    text = choice.text
    if (delta := choice.delta or choice.message) is not None:
        text = delta.content or delta.reasoning_content or delta.reasoning
        if delta.tool_calls:
            seen.size, text = math.inf, text or "-"
    if text:
        seen.size += len(text) if text.isascii() else len(text.encode())
    listed = choice.logprobs and (choice.logprobs.content or choice.logprobs.tokens)
    if at_s is not None and (text or listed):
        timed.stamps.append(at_s)
        timed.counts.append(len(listed) if listed else 1)


def _ring(answer: "asyncio.Future[Any]") -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


_WORDS = ("time", "year", "people", "way", "day", "thing", "life", "world", "school", "state", "family", "problem")


def requests_of(load: LoadWork, questions: Sequence[Question], number: int) -> list[Question]:
    """The given number of requests, determined by the seed: cases that expect an answer, reshuffled each round, or
    generated prompts."""
    chance = random.Random(f"{load.seed} requests")
    if load.lengths is not None:
        return [_made_up(load.lengths, chance) for _ in range(number)]
    asked = [one for one in questions if not one.error and one.request.mode is not Mode.TOKENIZE]
    good = [one for one in asked if len(one.request.inputs) == 1 or one.request.messages]
    if not good:
        raise DriverError("no case is usable as a load; add one with a single input and an expected answer")
    found: list[Question] = []
    while len(found) < number:
        found += chance.sample(good, len(good))
    return found[:number]


def _made_up(lengths: Lengths, chance: random.Random) -> Question:
    words = " ".join(chance.choices(_WORDS, k=chance.randint(*lengths.input)))
    tokens = chance.randint(*lengths.output)
    return Question("", Request(inputs=(words,), stopping=Stopping(tokens, tokens)))
