"""Findings of all answers of a cell: each way of asking each case, the ways among each other, and the whole."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from seatrial.check.answers.answer import compare_answer, compare_ways
from seatrial.check.answers.comparison import EXACT, Agreement, Comparison
from seatrial.check.answers.rules import WARNINGS, AnswerRule, Comparing
from seatrial.check.answers.walk import Walk
from seatrial.check.answers.whole import WholeJudgement, judge_whole
from seatrial.job import Finding, Verdict
from seatrial.job.generation import Answer, Case, Mode, Token

ANSWERS = "answers"


class Answered(msgspec.Struct, frozen=True):
    """One way in which a case was asked, and what came back."""

    case: Case
    way: str
    answer: Answer
    thing: str = ""  # what the driver calls it


def check_answers(answered: Sequence[Answered], comparing: Comparing, protocol: str) -> Iterator[Finding]:
    """What has no answer is not among them, and is the caller's to report."""
    first: dict[str, Answered] = {}
    by_way: dict[str, _Way] = {}
    for one in answered:
        comparison, walks = compare_answer(one.case, one.answer, comparing, protocol)
        found = _finding(one.case, one.way, comparison)
        if comparison == EXACT and one.case.skip_check and one.case.request.mode is not Mode.TOKENIZE:
            # Its text was compared with nothing.
            found = msgspec.structs.replace(found, data={"agreement": "counts_only"})
        yield found
        way = by_way.setdefault(one.way, _Way([], []))
        way.comparisons.append(comparison)
        way.walks.extend(walks)
        base = first.setdefault(one.case.name, one)
        if base is not one and one.case.error is None:
            ways = compare_ways(one.case, base.answer, one.answer, comparing)
            yield _finding(one.case, f"{one.way} = {base.way}", ways)
    for name, way in by_way.items():
        if comparing.rule is AnswerRule.NEAR_TIE and way.walks:
            whole = judge_whole(way.comparisons, way.walks, comparing.tolerance)
            yield _whole(f"as a whole, {name}", whole, comparing)
    if comparing.rule in WARNINGS:
        yield Finding(ANSWERS, comparing.rule.value, Verdict.PASSED, message=WARNINGS[comparing.rule])


class _Way(NamedTuple):
    comparisons: list[Comparison]
    walks: list[Walk]


def case_step(case: Case) -> str:
    return f"case {case.name}"


def _finding(case: Case, check: str, comparison: Comparison) -> Finding:
    passed = comparison.passes
    exact = comparison.agreement is Agreement.EXACT
    return Finding(
        case_step(case),
        check,
        Verdict.PASSED if passed else Verdict.FAILED,
        "" if passed else comparison.agreement.value,
        comparison.message,
        "" if exact else evidence_of(comparison),
        {} if exact else comparison.data(),
    )


def evidence_of(comparison: Comparison) -> str:
    """Both sides at the place that decided, with their likeliest tokens."""
    lines = [comparison.message]
    for side, token in (("expected", comparison.expected), ("got", comparison.got)):
        if token is not None:
            lines.append(f"{side:<8} {_token_text(token)}")
    return "\n".join(lines) if len(lines) > 1 else ""


def _token_text(token: Token) -> str:
    chosen = f"{token.text!r} {_figure(token.logprob)}"
    tops = "  ".join(f"{top.text!r} {_figure(top.logprob)}" for top in token.top)
    return f"{chosen}   of {tops}" if tops else chosen


def _figure(logprob: float | None) -> str:
    return "?" if logprob is None else f"{logprob:.4f}"


def _whole(check: str, whole: WholeJudgement, comparing: Comparing) -> Finding:
    tolerance = comparing.tolerance
    seen = (
        f"over {whole.positions} tokens the log-probabilities moved by {whole.rms:.2g} (root mean square; the "
        f"tolerance of {tolerance.precision} is {tolerance.rms:g}); {whole.near_ties} near ties in {whole.cases} "
        f"answers, where about {whole.near_ties_expected:.1f} are likely"
    )
    return Finding(
        ANSWERS,
        check,
        Verdict.PASSED if whole.passes else Verdict.FAILED,
        "" if whole.passes else Agreement.DRIFT.value,
        "; ".join(whole.problems) or seen,
        "" if whole.passes else seen,
        msgspec.to_builtins(whole) | {"precision": tolerance.precision, "source": tolerance.source},
    )
