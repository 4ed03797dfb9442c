"""Findings on the answers of a cell: each way of asking each case, the ways compared, and all together."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from seatrial.job import Finding, Verdict
from seatrial.kinds.serving.answers.answer import compare_answer, compare_ways
from seatrial.kinds.serving.answers.compare import EXACT, Agreement, Comparison, Walk, structure, tolerance_for
from seatrial.kinds.serving.answers.drift import WholeJudgement, judge_whole
from seatrial.kinds.serving.answers.expect import unchecked
from seatrial.kinds.serving.answers.judge import WARNINGS, AnswerRule, Comparing, compare_generation
from seatrial.kinds.serving.generation import FINISH_REASONS, Answer, Generation, StopReason, generations_of, tokens_of
from seatrial.kinds.serving.request import Case, Expect, Mode

ANSWERS = "answers"


class Answered(msgspec.Struct, frozen=True):
    """One way of asking a case, and its answer."""

    case: Case
    way: str
    answer: Answer
    thing: str = ""  # its name in the client's notes


def check_answers(answered: Sequence[Answered], comparing: Comparing, protocol: str) -> Iterator[Finding]:
    """Findings for cases with an answer; the caller reports the others."""
    first: dict[str, Answered] = {}
    by_way: dict[str, tuple[list[Comparison], list[Walk]]] = {}
    said: dict[str, list[Generation]] = {}  # so far in a conversation, by way; "" for the recorded one
    for one in answered:
        turn, case = one.case.request.turn, one.case
        for way, answer in (("", case.answer or Answer()), (one.way, one.answer)):
            said[way] = [*said.get(way, ())[:turn], *generations_of(answer)[:1]]
        if case.answer and not _same_texts(said[one.way][:turn], said[""][:turn]):
            case = msgspec.structs.replace(case, answer=None, expect=case.expect or Expect())
        comparison, walks = compare_answer(case, one.answer, comparing, protocol)
        if case is not one.case and comparison == EXACT:
            comparison = Comparison(Agreement.EXACT, "not compared: an earlier answer differs from the recorded one")
        found = _finding(one.case, one.way, comparison)
        if comparison == EXACT and one.case.skip_check and one.case.request.mode is not Mode.TOKENIZE:
            # The text was not compared.
            found = msgspec.structs.replace(found, data={"agreement": "counts_only"})
        yield found
        of_way = by_way.setdefault(one.way, ([], []))
        of_way[0].append(comparison)
        of_way[1].extend(walks)
        base = first.setdefault(one.case.name, one)
        same = _same_texts(said[one.way][:turn], said[base.way][:turn])
        if base is not one and one.case.error is None and same:
            ways = compare_ways(one.case, base.answer, one.answer, comparing)
            yield _finding(one.case, f"{one.way} = {base.way}", ways)
    for name, (comparisons, all_walks) in by_way.items():
        if comparing.rule is AnswerRule.NEAR_TIE and all_walks:
            whole = judge_whole(comparisons, all_walks, comparing.tolerance)
            yield _whole(f"as a whole, {name}", whole, comparing)
    if comparing.rule in WARNINGS:
        yield Finding(ANSWERS, comparing.rule.value, Verdict.PASSED, message=WARNINGS[comparing.rule])


def _same_texts(ones: Sequence[Generation], others: Sequence[Generation]) -> bool:
    return [(one.text or "", one.tool_calls) for one in ones] == [(one.text or "", one.tool_calls) for one in others]


def case_step(case: Case) -> str:
    return f"case {case.name}"


def with_reason(case: Case, message: str) -> str:
    return f"{message}; why: {case.why}" if case.why else message


def _finding(case: Case, check: str, comparison: Comparison) -> Finding:
    step, message = case_step(case), comparison.message
    if comparison.passes:
        message = "; ".join(filter(None, (message, unchecked(case.request))))
    if comparison.agreement is Agreement.EXACT:
        return Finding(step, check, Verdict.PASSED, message=message)
    verdict, class_ = (Verdict.PASSED, "") if comparison.passes else (Verdict.FAILED, comparison.agreement.value)
    message = message if comparison.passes else with_reason(case, message)
    return Finding(step, check, verdict, class_, message, evidence_of(comparison), msgspec.to_builtins(comparison))


def evidence_of(comparison: Comparison) -> str:
    """Both sides at the deciding position, with their most likely tokens."""
    lines = [comparison.message]
    for side, token in (("expected", comparison.expected), ("got", comparison.got)):
        if token is not None:
            tops = "  ".join(f"{top.text!r} {_metric(top.logprob)}" for top in token.top)
            lines.append(f"{side:<8} {token.text!r} {_metric(token.logprob)}{f'   of {tops}' if tops else ''}")
    return "\n".join(lines) if len(lines) > 1 else ""


def _metric(logprob: float | None) -> str:
    return "?" if logprob is None else f"{logprob:.4f}"


def _whole(check: str, whole: WholeJudgement, comparing: Comparing) -> Finding:
    tolerance = comparing.tolerance
    seen = (
        f"over {whole.positions} tokens the log-probabilities moved by {whole.rms:.2g} (root mean square; "
        f"{tolerance.precision} tolerance {tolerance.rms:g}); {whole.near_ties} near ties in {whole.cases} answers "
        f"(about {whole.near_ties_expected:.1f} expected)"
    )
    data = msgspec.to_builtins(whole) | {"precision": tolerance.precision, "source": tolerance.source}
    if whole.passes:
        return Finding(ANSWERS, check, Verdict.PASSED, message=seen, data=data)
    return Finding(ANSWERS, check, Verdict.FAILED, Agreement.DRIFT.value, "; ".join(whole.problems), seen, data)


# Compares plain lists of answers, without a trial.


class Judged(msgspec.Struct, frozen=True):
    passed: bool
    cases: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    whole: WholeJudgement


def judge_answers(expected: Sequence[Mapping[str, Any]], got: Sequence[Mapping[str, Any]], precision: str) -> Judged:
    """Compares by the rule `near-tie`, each answer and all together. An answer is `{prompt, text, finish, lp: {tokens,
    token_logprobs, top_logprobs}}`, as in OpenAI's completions."""
    tolerance = tolerance_for(precision)
    comparisons: list[Comparison] = []
    walks: list[Walk] = []
    for one, other in zip_longest(expected, got):
        if one is None or other is None:
            comparisons.append(structure("no answer" if other is None else "unexpected answer"))
        elif one.get("prompt") != other.get("prompt"):
            comparisons.append(structure("the prompts differ"))
        else:
            comparison, walk = compare_generation(read_completion(one), read_completion(other), tolerance)
            comparisons.append(comparison)
            walks += [walk] if walk is not None else []
    whole = judge_whole(comparisons, walks, tolerance)
    passed = whole.passes and bool(comparisons) and all(one.passes for one in comparisons)
    return Judged(passed, tuple(one.agreement.value for one in comparisons), tuple(comparisons), whole)


def read_completion(answer: Mapping[str, Any]) -> Generation:
    """Reads one choice of OpenAI's completions, with `finish` and `lp` for its finish reason and logprobs."""
    logprobs = answer.get("lp") or {}
    texts = logprobs.get("tokens") or ()
    chosen, tops = ((logprobs.get(name) or ())[: len(texts)] for name in ("token_logprobs", "top_logprobs"))
    tokens = tokens_of(texts, chosen, tops)
    finish = answer.get("finish")
    return Generation(
        text=answer.get("text"),
        # Only some servers list the end token of a text that ended on its own.
        generated_count=len(tokens) if logprobs and finish == "length" else None,
        stop_reason=FINISH_REASONS.get(str(finish), StopReason.ERROR) if finish is not None else None,
        tokens=tokens if logprobs else None,
    )
