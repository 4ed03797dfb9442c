"""Checks the answers of a load: the length of each one, and the content of a sample. Pure."""

import math
import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from seatrial.kinds.serving.answers.answer import compare_answer, repeated_unit
from seatrial.kinds.serving.answers.compare import Comparison, structure
from seatrial.kinds.serving.answers.findings import evidence_of
from seatrial.kinds.serving.answers.judge import Comparing
from seatrial.kinds.serving.driver.cases import with_checks
from seatrial.kinds.serving.generation import Case, Expect, Generation, StopReason, generations_of
from seatrial.kinds.serving.work import CheckedAnswers, LoadWork, Question

if TYPE_CHECKING:
    from seatrial.kinds.serving.driver.load_requests import Timed

EMPTY, SHORT, USAGE, WRONG = "empty", "short", "usage", "wrong"  # kinds of errors
_UNLISTED = 8  # tokens of an end token or stop sequence, which usage counts and the text lacks
_SHOWN = 20  # cases with wrong answers in the record
_LIMITS = ("max_tokens", "max_completion_tokens")


class Length(msgspec.Struct, frozen=True):
    """Tokens of a complete answer."""

    least: int  # 0: it may be empty
    most: int = 0  # requested limit; 0: unknown


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
    load: LoadWork, asked: Sequence[Question], timed: Sequence["Timed"], protocol: str
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
