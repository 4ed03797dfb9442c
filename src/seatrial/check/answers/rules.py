"""The rules by which an answer is compared, and tgis-tester's three strategies under their names."""

import math
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

import msgspec

from seatrial.check.answers.comparison import EXACT, Agreement, Comparison, structure, worst_of
from seatrial.check.answers.ladder import compare_generation, compare_text, same_stop, unsound
from seatrial.check.answers.tolerance import Tolerance
from seatrial.check.answers.walk import Walk
from seatrial.job.generation import Generation, StopReason, Token


class AnswerRule(StrEnum):
    EXACT = "exact"  # every figure, to what is written of it
    NEAR_TIE = "near-tie"
    APPROX = "approx"  # as TGIS's tests: every figure to 5 in 10,000, and nothing more or less than is expected
    TEXT = "text"  # the text alone
    EMBEDDING = "embedding"  # what the text means
    APPROX_EQUALITY = "approx_equality"
    EXACT_TEXT_MATCH = "exact_text_match"
    EMBEDDINGS_SIMILARITY = "embeddings_similarity"

    @property
    def similarity(self) -> bool:
        return self in (AnswerRule.EMBEDDING, AnswerRule.EMBEDDINGS_SIMILARITY)


WARNINGS = {
    AnswerRule.APPROX_EQUALITY: (
        "approx_equality compares log-probabilities with a tolerance of 5.0 of the larger one, which two finite ones "
        "can never be apart: it compares texts, counts and which figures there are. `near-tie` compares them"
    )
}
_WRITTEN = Tolerance("exact", drift=2e-6, rms=2e-6, near_tie=-1.0)  # as far as a recorded figure is rounded
_SAME_TEXT = Tolerance("exact", drift=math.inf, rms=math.inf, near_tie=-1.0)
_ABSENT: tuple[object, ...] = (None, 0, "", (), StopReason.NOT_FINISHED)  # protobuf does not send these
LEAST_SIMILARITY = 0.9


class Comparing(msgspec.Struct, frozen=True):
    """How answers are compared. `similarities` has what an embedding gave for each pair of texts that is compared."""

    rule: AnswerRule
    tolerance: Tolerance
    least_similarity: float = LEAST_SIMILARITY
    similarities: dict[tuple[str, str], float] = {}


def compare_by_rule(expected: Generation, got: Generation, comparing: Comparing) -> tuple[Comparison, Walk | None]:
    """One generation by the rule; the walk of `near-tie`, which counts for the trial as a whole."""
    rule = comparing.rule
    if rule is AnswerRule.NEAR_TIE:
        return compare_generation(expected, got, comparing.tolerance)
    if rule is AnswerRule.EXACT:
        text = compare_generation(expected, got, _SAME_TEXT)[0]
        return (text if not text.passes else compare_generation(expected, got, _WRITTEN)[0]), None
    if (problem := unsound(got)) is not None:
        return problem, None
    if rule.similarity:
        return _similar(expected, got, comparing), None
    if rule in (AnswerRule.TEXT, AnswerRule.EXACT_TEXT_MATCH):
        return compare_text(expected, got), None
    if rule is AnswerRule.APPROX:
        return _approximately(expected, got, _near_enough(5e-4, 1e-9), ranks=True), None
    return _approximately(expected, got, _near_enough(5.0, 5.0), ranks=False), None


def _similar(expected: Generation, got: Generation, comparing: Comparing) -> Comparison:
    one, other = expected.text or "", got.text or ""
    if one == other:
        return EXACT
    similarity = comparing.similarities.get((one, other))
    if similarity is None:
        return Comparison(Agreement.STRUCTURE, "there is no embedding of this text: it could not be compared")
    least = comparing.least_similarity
    if similarity >= least:
        return Comparison(Agreement.NEAR_TIE, f"another text, with a similarity of {similarity:.3f}", None, similarity)
    message = f"another text, with a similarity of {similarity:.3f}; at least {least:g} is asked for"
    return Comparison(Agreement.DIVERGED, message, None, similarity, least)


# ---- figures within a tolerance, and nothing more or less than is expected

_Near = Callable[[float, float], bool]


def _near_enough(relative: float, absolute: float) -> _Near:
    return lambda one, other: math.isclose(one, other, rel_tol=relative, abs_tol=absolute)


def _approximately(expected: Generation, got: Generation, near: _Near, ranks: bool) -> Comparison:
    return worst_of(list(_differences(expected, got, near, ranks)))


def _differences(expected: Generation, got: Generation, near: _Near, ranks: bool) -> Iterator[Comparison]:
    if (expected.text or "") != (got.text or ""):
        yield compare_text(expected, got)
    for name in ("input_count", "generated_count", "stop_sequence", "seed"):
        one, other = getattr(expected, name), getattr(got, name)
        if one != other and not (one in _ABSENT and other in _ABSENT):
            yield structure(f"{name} is {other!r}; expected {one!r}")
    reason = expected.stop_reason or StopReason.NOT_FINISHED
    if not same_stop(reason, got.stop_reason or StopReason.NOT_FINISHED):
        yield structure(f"stop_reason is {got.stop_reason}; expected {expected.stop_reason}")
    for name in ("tokens", "input_tokens"):
        yield from _token_differences(name, getattr(expected, name) or (), getattr(got, name) or (), near, ranks)


def _token_differences(
    name: str, ones: Sequence[Token], others: Sequence[Token], near: _Near, ranks: bool
) -> Iterator[Comparison]:
    if len(ones) != len(others):
        yield structure(f"{len(others)} {name}; expected {len(ones)}")
    for place, (one, other) in enumerate(zip(ones, others, strict=False)):
        what = f"{name} {place}"
        if one.text != other.text:
            message = f"{what} is {other.text!r}; expected {one.text!r}"
            yield Comparison(Agreement.DIVERGED, message, place, None, None, one, other)
        elif ranks and (one.rank or 0) != (other.rank or 0):
            yield Comparison(Agreement.DRIFT, f"{what} has rank {other.rank}", place, None, None, one, other)
        elif [top.text for top in one.top] != [top.text for top in other.top]:
            message = f"the likeliest of {what} are others"
            yield Comparison(Agreement.STRUCTURE, message, place, None, None, one, other)
        else:
            pairs = [(one.logprob, other.logprob)]
            pairs += [(a.logprob, b.logprob) for a, b in zip(one.top, other.top, strict=True)]
            if not all(_both_near(a, b, near) for a, b in pairs):
                size = max(abs((a or 0.0) - (b or 0.0)) for a, b in pairs)
                message = f"a log-probability of {what} moved by {size:.3g}"
                yield Comparison(Agreement.DRIFT, message, place, size, None, one, other)


def _both_near(one: float | None, other: float | None, near: _Near) -> bool:
    """A zero is not sent, so one that is absent is zero."""
    if one is None or other is None:
        return not one and not other
    return near(one, other)
