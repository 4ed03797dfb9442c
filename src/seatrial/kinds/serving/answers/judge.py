"""The rule `near-tie`: one answer against another, up the ladder from `exact` to `structure`.

While both texts are equal, the log-probability of every token that both sides name must be within the tolerance. The
first different token must be a near tie: about as likely as the other one in the expected answer, and the server's own
most likely token. The rest of the text cannot be compared; it must only be consistent with itself."""

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

import msgspec

from seatrial.kinds.serving.answers.compare import (
    EXACT,
    ROUNDED,
    UNREADABLE,
    Agreement,
    Comparison,
    Tolerance,
    Walk,
    behind,
    gap_of,
    other_calls,
    same_token,
    structure,
    walk,
    worst_of,
)
from seatrial.kinds.serving.generation import Generation, StopReason, Token

_Near = Callable[[float | None, float | None], bool]
_STOPPED = {StopReason.STOP, StopReason.EOS_TOKEN, StopReason.STOP_SEQUENCE}
_ENDED = _STOPPED | {StopReason.TOOL_CALLS}
_PROBABILITY_SLACK = 1e-3  # servers round log-probabilities


def compare_generation(expected: Generation, got: Generation, tolerance: Tolerance) -> tuple[Comparison, Walk | None]:
    """Returns also the walk, which counts for the trial as a whole; None if no tokens were compared."""
    if (problem := unsound(got)) is not None:
        return problem, None
    if expected.tokens and not got.tokens:
        return structure("expected tokens, got none"), None
    inputs = _input(expected, got, tolerance)
    if not inputs.passes:
        return inputs, None
    if not expected.tokens or not got.tokens:
        text = compare_text(expected, got)
        return text if not text.passes else _ending(expected, got), None
    steps = walk(expected.tokens, got.tokens)
    return _tokens(expected, got, steps, tolerance), steps


def unsound(got: Generation) -> Comparison | None:
    """A problem with an answer, whatever was expected."""
    tokens = got.tokens or ()
    if got.generated_count is not None and tokens:
        # All servers count the end token or stop sequence, few list it.
        ended = got.stop_reason in _ENDED
        if len(tokens) > got.generated_count or (len(tokens) < got.generated_count and not ended):
            return structure(f"{got.generated_count} generated tokens reported, {len(tokens)} listed")
    if got.input_tokens and got.input_count is not None and got.input_count != len(got.input_tokens):
        return structure(f"{got.input_count} input tokens reported, {len(got.input_tokens)} listed")
    for index, token in enumerate(tokens):
        logprob = token.logprob
        if logprob is not None and (logprob > _PROBABILITY_SLACK or logprob != logprob):
            return structure(f"invalid log-probability of token {index}: {logprob}", index)
    return None


def _input(expected: Generation, got: Generation, tolerance: Tolerance) -> Comparison:
    if expected.input_count and got.input_count is not None and expected.input_count != got.input_count:
        return structure(f"{got.input_count} input tokens (expected {expected.input_count})")
    if not expected.input_tokens:
        return EXACT
    if not got.input_tokens:
        return structure("expected input tokens, got none")
    steps = walk(expected.input_tokens, got.input_tokens)
    if steps.split is not None:
        return structure(f"the input differs from token {steps.split} on", steps.split)
    return _drift(steps, expected.input_tokens, got.input_tokens, tolerance, "input token") or EXACT


def compare_text(expected: Generation, got: Generation, name: str = "text") -> Comparison:
    """Compares texts only: without tokens there are no near ties."""
    one, other = getattr(expected, name) or "", getattr(got, name) or ""
    if one != other:
        index = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        shown = f"{other[index : index + 40]!r} instead of {one[index : index + 40]!r}"
        return Comparison(Agreement.DIVERGED, f"the {name} differs from character {index} on: {shown}")
    return EXACT


def _tokens(expected: Generation, got: Generation, steps: Walk, tolerance: Tolerance) -> Comparison:
    ones, others = expected.tokens or (), got.tokens or ()
    if steps.missing is not None:
        return structure(f"token {steps.missing} lacks the expected log-probabilities", steps.missing)
    moved = _drift(steps, ones, others, tolerance, "token")
    if moved is not None:
        return moved
    if steps.greedy and (other_way := _not_likeliest(others, tolerance)) is not None:
        return other_way
    if (index := steps.split) is not None:
        # Both may have ended after the same text, but only one lists the end token.
        both_ended = expected.stop_reason in _STOPPED and got.stop_reason in _STOPPED
        if not both_ended or expected.text != got.text or sorted((len(ones), len(others))) != [index, index + 1]:
            return _split(expected, got, index, tolerance)
    if got.text is not None and expected.text is not None and _readable(got.text) != _readable(expected.text):
        return compare_text(expected, got)
    return _ending(expected, got)


def _readable(text: str) -> str:
    """Removes marks of partial characters, which engines write differently for the same tokens."""
    return text.replace(UNREADABLE, "")


def _ending(expected: Generation, got: Generation) -> Comparison:
    """Compares what must be equal if the texts are."""
    if expected.generated_count and got.generated_count is not None and expected.generated_count != got.generated_count:
        return structure(f"{got.generated_count} generated tokens (expected {expected.generated_count})")
    if expected.stop_reason is not None and not same_stop(expected.stop_reason, got.stop_reason):
        return structure(f"stop reason {_word(got.stop_reason)} (expected {_word(expected.stop_reason)})")
    if expected.stop_sequence and got.stop_sequence is not None and got.stop_sequence != expected.stop_sequence:
        return structure(f"stop sequence {got.stop_sequence!r} (expected {expected.stop_sequence!r})")
    if expected.seed is not None and got.seed is not None and expected.seed != got.seed:
        return structure(f"seed {got.seed} (expected {expected.seed})")
    return EXACT


def same_stop(expected: StopReason, got: StopReason | None) -> bool:
    """OpenAI's protocol uses one stop reason for the end token and stop sequences."""
    return expected is got or (StopReason.STOP in (expected, got) and {expected, got} <= _STOPPED)


def _word(reason: StopReason | None) -> str:
    return reason.upper() if reason else "missing"


def _drift(
    steps: Walk, ones: Sequence[Token], others: Sequence[Token], tolerance: Tolerance, what: str
) -> Comparison | None:
    """Drift if one log-probability moved too far, or all of them on average."""
    if not steps.starts:
        return None
    sizes = list(map(abs, steps.moved))
    largest = max(sizes)
    rms = math.sqrt(sum(size * size for size in sizes) / len(sizes))
    most = tolerance.rms * (1 + 3 / math.sqrt(len(steps.starts)))  # the mean of few positions is uncertain
    if largest > tolerance.drift:
        pair = next(index for index, size in enumerate(sizes) if size > tolerance.drift)
        index, size, limit = steps.position_of(pair), sizes[pair], tolerance.drift
        message = f"a log-probability of {what} {index} moved by {size:.3g} (tolerance {limit:g})"
    elif rms > most:
        index, size, limit = steps.position_of(sizes.index(largest)), rms, most
        message = f"the log-probabilities moved by {rms:.3g} on average (tolerance {most:.3g})"
    else:
        return None
    return Comparison(Agreement.DRIFT, message, index, size, limit, _at(ones, index), _at(others, index))


def _not_likeliest(tokens: Sequence[Token], tolerance: Tolerance) -> Comparison | None:
    """Finds a penalty, temperature or filter that was not requested: the expected answer takes the most likely token
    everywhere, this one does not. Rounding cannot cause that, so almost no tolerance is needed."""
    for index, token in enumerate(tokens):
        distance = behind(token)
        if distance > tolerance.rms:
            message = f"token {index} is not the server's own most likely token (behind by {distance:.3g})"
            return Comparison(Agreement.DIVERGED, message, index, distance, tolerance.rms, None, token)
    return None


def _split(expected: Generation, got: Generation, index: int, tolerance: Tolerance) -> Comparison:
    one, other = _at(expected.tokens or (), index), _at(got.tokens or (), index)
    if one is None or other is None:
        return _ended_first(expected, got, index, tolerance)
    gap, known = _gap(one, other)
    ways, sampled = f"{other.text!r} instead of {one.text!r}", behind(one) > ROUNDED
    if gap <= tolerance.near_tie and not sampled:
        message = f"near tie at token {index}: {ways}, {gap:.3g} apart"
        return Comparison(Agreement.NEAR_TIE, message, index, gap, tolerance.near_tie, one, other)
    distance = f"{gap:.3g} apart" if known else f"at least {gap:.3g} apart"
    if sampled:
        distance = f"{'' if known else 'at least '}{abs(gap):.3g} {'more' if gap < 0 else 'less'} likely when recorded"
        why = f"the recorded token was sampled, {behind(one):.3g} behind the most likely one, so there are no near ties"
        message = f"the text differs from token {index} on: {ways}, which was {distance}; {why}"
    else:
        message = f"the text differs from token {index} on: {ways}, {distance} (tolerance {tolerance.near_tie:g})"
    return Comparison(Agreement.DIVERGED, message, index, gap, tolerance.near_tie, one, other)


def _gap(one: Token, other: Token) -> tuple[float, bool]:
    """How much more likely the expected token is than the received one, by the expected log-probabilities, and whether
    they list both. A token that they do not list is less likely than all that they list."""
    if one.logprob is None:
        return math.inf, False
    named = [top.logprob for top in one.top if top.logprob is not None and same_token(top.text, other.text)]
    if named:
        return one.logprob - named[0], True
    if one.top:
        least = min((top.logprob for top in one.top if top.logprob is not None), default=-math.inf)
        return max(0.0, one.logprob - least), False
    return (math.inf, False) if other.logprob is None else (abs(one.logprob - other.logprob), True)


def _ended_first(expected: Generation, got: Generation, index: int, tolerance: Tolerance) -> Comparison:
    """One text ends where the other continues. The end token is not listed, so the longer text's log-probabilities
    decide: it is a near tie if its two most likely tokens are."""
    longer, shorter = (expected, got) if len(expected.tokens or ()) > len(got.tokens or ()) else (got, expected)
    token = (longer.tokens or ())[index]
    gap = gap_of(token.top) if len(token.top) > 1 else math.inf
    one, other = (token, None) if longer is expected else (None, token)
    verbs = ("ends", "continues") if shorter is got else ("continues", "ends")
    ends = f"the text {verbs[0]} at token {index}, where the expected text {verbs[1]}"
    if shorter.stop_reason in _STOPPED and gap <= tolerance.near_tie:
        return Comparison(Agreement.NEAR_TIE, f"near tie: {ends}", index, gap, tolerance.near_tie, one, other)
    reason = f" (stop reason {_word(got.stop_reason)})"
    return Comparison(Agreement.DIVERGED, ends + reason, index, None, tolerance.near_tie, one, other)


def _at(tokens: Sequence[Token], index: int) -> Token | None:
    return tokens[index] if index < len(tokens) else None


# All rules, including tgis-tester's three strategies under their names.


class AnswerRule(StrEnum):
    EXACT = "exact"  # every value, to its recorded digits
    NEAR_TIE = "near-tie"
    APPROX = "approx"  # as TGIS's tests: every value to 5 in 10,000, with exactly the expected fields
    TEXT = "text"  # the text alone
    EMBEDDING = "embedding"  # the meaning of the text
    APPROX_EQUALITY = "approx_equality"
    EXACT_TEXT_MATCH = "exact_text_match"
    EMBEDDINGS_SIMILARITY = "embeddings_similarity"

    @property
    def similarity(self) -> bool:
        return self in (AnswerRule.EMBEDDING, AnswerRule.EMBEDDINGS_SIMILARITY)


WARNINGS = {
    AnswerRule.APPROX_EQUALITY: (
        "approx_equality allows log-probabilities to differ by 5 times the larger one, so it never fails on them: it "
        "compares texts, counts and which log-probabilities are present; use `near-tie` to compare their values"
    )
}
_WRITTEN = Tolerance("exact", drift=2e-6, rms=2e-6, near_tie=-1.0)  # rounding of recorded values
_SAME_TEXT = Tolerance("exact", drift=math.inf, rms=math.inf, near_tie=-1.0)
_ABSENT: tuple[object, ...] = (None, 0, "", (), StopReason.NOT_FINISHED)  # protobuf does not send these
LEAST_SIMILARITY = 0.9


class Comparing(msgspec.Struct, frozen=True):
    """How answers are compared. `similarities` has the cosine of the embeddings of each pair of texts."""

    rule: AnswerRule
    tolerance: Tolerance
    least_similarity: float = LEAST_SIMILARITY
    similarities: dict[tuple[str, str], float] = {}
    model: str = ""  # name in the requests
    usage: bool = True  # every answer must have it if the recorded one has


def compare_by_rule(expected: Generation, got: Generation, comparing: Comparing) -> tuple[Comparison, Walk | None]:
    """Compares by the rule. Returns also the walk of `near-tie`, which counts for the trial as a whole."""
    rule = comparing.rule
    if expected.vector is not None or got.vector is not None:
        tolerance = _WRITTEN if rule is AnswerRule.EXACT else comparing.tolerance
        return compare_vectors(expected.vector or (), got.vector or (), tolerance), None
    if problem := other_calls(expected.tool_calls or (), got.tool_calls or ()):
        return Comparison(Agreement.TOOL_CALLS, problem), None
    if expected.reasoning and not rule.similarity and (expected.reasoning != got.reasoning):
        return compare_text(expected, got, "reasoning"), None
    if expected.model and comparing.model and got.model != comparing.model:
        return structure(f"the answer is from model {got.model!r} (expected {comparing.model!r})"), None
    if expected.input_count and got.input_count is None and comparing.usage:
        return structure(f"no usage (expected {expected.input_count} input tokens)"), None
    if rule is AnswerRule.NEAR_TIE:
        return compare_generation(expected, got, comparing.tolerance)
    if rule is AnswerRule.EXACT:
        text = compare_generation(expected, got, _SAME_TEXT)[0]
        return (text if not text.passes else compare_generation(expected, got, _WRITTEN)[0]), None
    if (unsound_answer := unsound(got)) is not None:
        return unsound_answer, None
    if rule.similarity:
        return _similar(expected, got, comparing), None
    if rule in (AnswerRule.TEXT, AnswerRule.EXACT_TEXT_MATCH):
        return compare_text(expected, got), None
    if rule is AnswerRule.APPROX:
        return worst_of(list(_differences(expected, got, 5e-4, 1e-9, ranks=True))), None
    return worst_of(list(_differences(expected, got, 5.0, 5.0, ranks=False))), None


def compare_vectors(expected: Sequence[float], got: Sequence[float], tolerance: Tolerance) -> Comparison:
    """Compares two embeddings by their direction and length. The distance of the vectors, scaled to length 1, may be
    twice the tolerance of the mean drift: both are relative errors of the computation."""
    if len(expected) != len(got):
        return structure(f"{len(got)} dimensions (expected {len(expected)})")
    lengths = math.hypot(*expected), math.hypot(*got)
    if not all(lengths):
        return EXACT if lengths == (0, 0) else structure("one of the vectors is zero")
    cosine = min(1.0, sum(map(operator.mul, expected, got)) / (lengths[0] * lengths[1]))
    least, moved = 1 - 2 * tolerance.rms**2, abs(lengths[1] / lengths[0] - 1)
    if cosine < least:
        text = f"cosine {cosine:.7f} to the expected vector (at least {least:.7f})"
        return Comparison(Agreement.DIVERGED, text, None, cosine, least)
    if moved > tolerance.drift:
        text = f"the vector has the length {lengths[1]:.4g} (expected {lengths[0]:.4g})"
        return Comparison(Agreement.DRIFT, text, None, moved, tolerance.drift)
    return EXACT


def _similar(expected: Generation, got: Generation, comparing: Comparing) -> Comparison:
    one, other = expected.text or "", got.text or ""
    if one == other:
        return EXACT
    similarity = comparing.similarities.get((one, other))
    if similarity is None:
        return Comparison(Agreement.STRUCTURE, "not compared: no embedding of this text")
    least = comparing.least_similarity
    if similarity >= least:
        return Comparison(Agreement.NEAR_TIE, f"different text with similarity {similarity:.3f}", None, similarity)
    message = f"different text with similarity {similarity:.3f} (minimum {least:g})"
    return Comparison(Agreement.DIVERGED, message, None, similarity, least)


# ---- the rules `approx` and `approx_equality`


def _differences(expected: Generation, got: Generation, rel: float, least: float, ranks: bool) -> Iterator[Comparison]:
    """Log-probabilities may differ by the share `rel` of the larger one, or by `least`."""

    def near(one: float | None, other: float | None) -> bool:
        if one is None or other is None:
            return not one and not other  # protobuf does not send zeros, so absent means zero
        return math.isclose(one, other, rel_tol=rel, abs_tol=least)

    if (expected.text or "") != (got.text or ""):
        yield compare_text(expected, got)
    for name in ("input_count", "generated_count", "stop_sequence", "seed"):
        one, other = getattr(expected, name), getattr(got, name)
        if one != other and not (one in _ABSENT and other in _ABSENT):
            yield structure(f"{name} is {other!r} (expected {one!r})")
    reason = expected.stop_reason or StopReason.NOT_FINISHED
    if not same_stop(reason, got.stop_reason or StopReason.NOT_FINISHED):
        yield structure(f"stop_reason is {got.stop_reason} (expected {expected.stop_reason})")
    for name in ("tokens", "input_tokens"):
        yield from _token_differences(name, getattr(expected, name) or (), getattr(got, name) or (), near, ranks)


def _token_differences(
    name: str, ones: Sequence[Token], others: Sequence[Token], near: _Near, ranks: bool
) -> Iterator[Comparison]:
    if len(ones) != len(others):
        yield structure(f"{len(others)} {name} (expected {len(ones)})")
    for index, (one, other) in enumerate(zip(ones, others, strict=False)):
        what = f"{name} {index}"
        if one.text != other.text:
            message = f"{what} is {other.text!r} (expected {one.text!r})"
            yield Comparison(Agreement.DIVERGED, message, index, None, None, one, other)
        elif ranks and (one.rank or 0) != (other.rank or 0):
            yield Comparison(Agreement.DRIFT, f"{what} has rank {other.rank}", index, None, None, one, other)
        elif [top.text for top in one.top] != [top.text for top in other.top]:
            message = f"the most likely tokens of {what} differ"
            yield Comparison(Agreement.STRUCTURE, message, index, None, None, one, other)
        else:
            pairs = [(one.logprob, other.logprob)]
            pairs += [(a.logprob, b.logprob) for a, b in zip(one.top, other.top, strict=True)]
            if not all(near(a, b) for a, b in pairs):
                size = max(abs((a or 0.0) - (b or 0.0)) for a, b in pairs)
                message = f"a log-probability of {what} moved by {size:.3g}"
                yield Comparison(Agreement.DRIFT, message, index, size, None, one, other)
