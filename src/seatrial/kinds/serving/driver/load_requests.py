"""Requests of a load: sends them, and records their times and errors."""

import asyncio
import time
from collections.abc import Callable

import msgspec

from seatrial.kinds.serving.driver.client import Client
from seatrial.kinds.serving.driver.load_check import Length, length_of, length_problem
from seatrial.kinds.serving.generation import Answer, Failure, Generation, Request, Trouble
from seatrial.kinds.serving.work import LoadWork, Question


class Timed(msgspec.Struct):
    """Times and result of one request, by one monotonic clock."""

    intended_s: float
    begun_s: float = 0.0
    sent_s: float = 0.0
    first_byte_s: float | None = None
    end_s: float = 0.0
    answer_s: float | None = None  # arrival of the first message after the reasoning
    stamps: list[float] = []  # arrival of each message with text
    counts: list[int] = []  # tokens in each of these messages
    tokens: int = 0  # reported by the server, else counted
    error: str = ""  # kind of error; empty: answered
    keep: bool = False  # the answer, for checking
    turn: int = 0  # of a conversation, from 1
    said: str = ""  # the text of the answer, in a conversation
    answer: Answer | None = None


class Prepared(msgspec.Struct, frozen=True):
    request: Request
    data: bytes  # encoded in advance, so that this costs no time when it starts
    length: Length


class Sender:
    """Sends requests of a load, one task per request."""

    def __init__(self, client: Client, load: LoadWork) -> None:
        self._client, self._load = client, load
        self._tasks: set[asyncio.Task[None]] = set()

    def prepare(self, question: Question) -> Prepared:
        # Few servers know `min_tokens`; without it, the length of an answer would be that of the model's choice.
        extra = {} if self._load.lengths is None else {"ignore_eos": True}
        request = msgspec.structs.replace(question.request, cancelled=0)
        data = self._client.encode(request, self._load.stream, extra)
        return Prepared(request, data, length_of(question, self._load, self._client.extra))

    def send(self, prepared: Prepared, timed: Timed, finished: Callable[[Timed], None]) -> None:
        task = asyncio.create_task(self._ask(prepared, timed, finished))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, prepared: Prepared, timed: Timed, finished: Callable[[Timed], None]) -> None:
        load = self._load
        answer = await self._client.ask(prepared.request, load.stream, load.request_s, prepared.data)
        record_answer(timed, answer, prepared.length)
        finished(timed)


def record_answer(timed: Timed, answer: Answer, length: Length) -> None:
    """The times of its tokens, and whether it failed or has a wrong length."""
    times = answer.times
    timed.sent_s = times.sent_s or timed.begun_s
    timed.first_byte_s, timed.end_s = times.first_byte_s, times.ended_s or time.monotonic()
    for at_s, message in zip(times.messages_s, answer.messages, strict=True):
        only_input = message.input_count and not message.generated_count  # TGIS begins with it
        if not only_input and (message.text or message.tokens or message.reasoning or message.tool_calls):
            timed.stamps.append(at_s)
            timed.counts.append(len(message.tokens or ()) or 1)
            if timed.answer_s is None and not message.reasoning:
                timed.answer_s = at_s
    whole = answer.generations[0] if answer.generations else Generation()
    timed.tokens = sum(timed.counts) if whole.generated_count is None else whole.generated_count
    timed.said = (whole.text or "") if timed.turn else ""
    if answer.failure is not None:
        timed.error = kind_of(answer.failure)
    else:
        timed.error = length_problem(length, whole, len(timed.stamps))
        timed.answer = answer if timed.keep else None


def kind_of(failure: Failure) -> str:
    """Key for counting errors: the server's code, or the kind of failure."""
    answered = failure.trouble is Trouble.ANSWERED
    return (failure.code or "error") if answered else failure.trouble.value
