"""Answers of a server against those of a reference, as plain lists: the comparison without a trial around it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from seatrial.check.answers.comparison import Comparison, structure
from seatrial.check.answers.ladder import compare_generation
from seatrial.check.answers.tolerance import tolerance_for
from seatrial.check.answers.whole import WholeJudgement, judge_whole
from seatrial.job.generation import Generation, StopReason, Token, TopToken

_FINISHES = {"length": StopReason.MAX_TOKENS, "stop": StopReason.STOP}


class Judged(msgspec.Struct, frozen=True):
    passed: bool
    cases: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    whole: WholeJudgement


def judge_answers(expected: Sequence[Mapping[str, Any]], got: Sequence[Mapping[str, Any]], precision: str) -> Judged:
    """By the rule `near-tie` and the rule for the whole. Each answer is `{prompt, text, finish, lp: {tokens,
    token_logprobs, top_logprobs}}`, as OpenAI's completions have it."""
    tolerance = tolerance_for(precision)
    comparisons: list[Comparison] = []
    walks = []
    for number in range(max(len(expected), len(got))):
        if number >= len(got) or number >= len(expected):
            comparisons.append(structure("there is no answer" if number >= len(got) else "nothing like it is expected"))
        elif expected[number].get("prompt") != got[number].get("prompt"):
            comparisons.append(structure("it answers another prompt"))
        else:
            one, other = read_completion(expected[number]), read_completion(got[number])
            comparison, walk = compare_generation(one, other, tolerance)
            comparisons.append(comparison)
            if walk is not None:
                walks.append(walk)
    whole = judge_whole(comparisons, walks, tolerance)
    passed = whole.passes and bool(comparisons) and all(one.passes for one in comparisons)
    return Judged(passed, tuple(one.agreement.value for one in comparisons), tuple(comparisons), whole)


def read_completion(answer: Mapping[str, Any]) -> Generation:
    """One choice of OpenAI's completions, with `finish` and `lp` for its finish reason and its logprobs."""
    logprobs = answer.get("lp") or {}
    texts = logprobs.get("tokens") or ()
    chosen = logprobs.get("token_logprobs") or ()
    tops = logprobs.get("top_logprobs") or ()
    tokens = tuple(
        Token(text, _at(chosen, place), None, tuple(TopToken(*top) for top in (_at(tops, place) or {}).items()))
        for place, text in enumerate(texts)
    )
    finish = answer.get("finish")
    return Generation(
        text=answer.get("text"),
        # Of a text that ended by itself some servers list the token that ends it, and some do not.
        generated_count=len(tokens) if logprobs and finish == "length" else None,
        stop_reason=_FINISHES.get(str(finish), StopReason.ERROR) if finish is not None else None,
        tokens=tokens if logprobs else None,
    )


def _at(values: Sequence[Any], place: int) -> Any:
    return values[place] if place < len(values) else None
