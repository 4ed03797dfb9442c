"""Requests of a load: sends them, records their times and errors, and checks the answers: the length of each one, and
the content of a sample."""

import asyncio
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import msgspec

from seatrial.kinds.serving.answers.answer import compare_answer, repeated_unit
from seatrial.kinds.serving.answers.compare import Comparison, structure
from seatrial.kinds.serving.answers.findings import evidence_of
from seatrial.kinds.serving.answers.judge import Comparing
from seatrial.kinds.serving.driver.cases import with_checks
from seatrial.kinds.serving.driver.client import Client
from seatrial.kinds.serving.generation import Answer, Failure, Generation, StopReason, Trouble, generations_of
from seatrial.kinds.serving.load_work import CheckedAnswers, LoadWork
from seatrial.kinds.serving.request import Case, Expect, Request
from seatrial.kinds.serving.work import Question

EMPTY, SHORT, USAGE, WRONG = "empty", "short", "usage", "wrong"  # kinds of errors
_UNLISTED = 8  # tokens of an end token or stop sequence, which usage counts and the text lacks
_SHOWN = 20  # cases with wrong answers in the record
_LIMITS = ("max_tokens", "max_completion_tokens")


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


class Length(msgspec.Struct, frozen=True):
    """Tokens of a complete answer."""

    least: int  # 0: it may be empty
    most: int = 0  # requested limit; 0: unknown


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
    whole = next(iter(generations_of(answer) if answer.failure is None else ()), Generation())
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


def length_of(question: Question, load: LoadWork, extra: Mapping[str, object]) -> Length:
    if load.lengths is not None:
        tokens = question.request.stopping.explicit
        return Length(tokens.min_new_tokens or 1, tokens.max_new_tokens or 0) if load.check else Length(1)
    least = 1 if question.tokens is None else 2 if question.tokens > 2 else min(question.tokens, 1)
    # Some servers remove white space around structured answers, so their tokens may have no text.
    unusual = question.request.decoding.guided or question.request.choices > 1
    if load.check is None or unusual or any(name in extra for name in _LIMITS):
        return Length(min(least, 1))
    stopping = question.request.stopping if question.request.path else question.request.stopping.explicit
    return Length(least, stopping.max_new_tokens or 0)


def length_problem(length: Length, got: Generation, messages: int) -> str:
    """The kind of error of an answer with a wrong length; empty if there is none. A token has at least one byte, and a
    message of a stream at least one token."""
    size: float = len((got.text or "").encode()) + len((got.reasoning or "").encode())
    if got.tool_calls:
        size = math.inf  # they have tokens without text
    if not size:
        return EMPTY if length.least else ""
    at_limit, reported = got.stop_reason is StopReason.MAX_TOKENS, got.generated_count
    tokens = size if reported is None else reported
    if tokens < length.least or (at_limit and tokens < length.most):
        return SHORT
    most = size + (got.hidden_count or 0) + (0 if at_limit else _UNLISTED)
    return "" if reported is None or not length.most or messages <= reported <= most else USAGE


def draw_sample(load: LoadWork, asked: Sequence[Question]) -> Sequence[int]:
    """Which requests to check: one of each of `sample` equal parts of the load, by the seed; if possible, one that has
    a recorded answer."""
    if load.check is None:
        return ()
    number = len(asked)
    parts = number if load.check.sample is None else min(load.check.sample, number)
    chance = random.Random(f"{load.seed} check")
    edges = [number * part // parts for part in range(parts + 1)]
    return [
        chance.choice([one for one in range(low, high) if asked[one].answer is not None] or range(low, high))
        for low, high in pairwise(edges)
    ]


def check_sample(
    load: LoadWork, asked: Sequence[Question], timed: Sequence[Timed], protocol: str
) -> CheckedAnswers | None:
    """Compares the kept answers by the rule of the cases, and marks wrong ones as errors. An answer without a recorded
    one must only be consistent with itself and its request."""
    if load.check is None:
        return None
    checked = compared = 0
    wrong: dict[str, list[Comparison]] = {}
    comparing = Comparing(load.check.rule, load.check.tolerance)
    for question, one in zip(asked, timed, strict=True):
        if one.answer is None or one.error:
            continue
        answer, one.answer = one.answer, None
        answer = with_checks(answer, question, load.stream)
        checked += 1
        expect = question.expect or Expect()
        case = Case(question.name, question.request, question.answer, expect=expect, skip_check=question.skip_check)
        found = compare_answer(case, answer, comparing, protocol)[0]
        if question.answer is not None:
            compared += 1
        else:
            units = [unit for one in generations_of(answer) if (unit := repeated_unit(one.text or ""))]
            found = structure(f"the text only repeats {units[0]!r:.120}") if found.passes and units else found
        if not found.passes:
            one.error = WRONG
            wrong.setdefault(question.name or "generated prompts", []).append(found)
    most_first = sorted(wrong.items(), key=lambda item: -len(item[1]))[:_SHOWN]
    shown = {name: (len(ones), evidence_of(ones[0]) or ones[0].message) for name, ones in most_first}
    return CheckedAnswers(checked, compared, sum(map(len, wrong.values())), shown)
