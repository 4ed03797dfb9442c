"""Result of comparing one answer, tolerances, and the token-by-token walk over two answers."""

import math
import operator
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from seatrial.job import Unreadable, decode
from seatrial.kinds.serving.generation import Token, ToolCall, TopToken

SHOWN = 200  # characters of a text in a message


class Agreement(StrEnum):
    """How well two answers agree, from best to worst. The first two pass."""

    EXACT = "exact"
    NEAR_TIE = "near_tie"  # the texts diverge where both tokens are about equally likely
    DRIFT = "drift"  # same text, but log-probabilities moved too far
    DIVERGED = "diverged"  # different text
    TOOL_CALLS = "tool_calls"  # other tools or arguments
    STRUCTURE = "structure"  # wrong counts, stop reason, tokens or stream messages
    EXPECT = "expect"  # an expectation of the case is not met
    ERROR = "error"  # an error instead of an answer, the reverse, or a different error

    @property
    def passes(self) -> bool:
        return self in (Agreement.EXACT, Agreement.NEAR_TIE)


_WORST_FIRST = tuple(reversed(Agreement))


class Comparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """`size` is the gap of a near tie or divergence, or how far a log-probability moved; `position` counts tokens from
    0. The tokens are those at that position, with their most likely alternatives."""

    agreement: Agreement
    message: str = ""
    position: int | None = None
    size: float | None = None
    tolerance: float | None = None
    expected: Token | None = None
    got: Token | None = None

    @property
    def passes(self) -> bool:
        return self.agreement.passes


EXACT = Comparison(Agreement.EXACT)


def worst_of(comparisons: list[Comparison]) -> Comparison:
    """The first of the worst comparisons; EXACT if there are none."""
    return min(comparisons, key=lambda one: _WORST_FIRST.index(one.agreement), default=EXACT)


def structure(message: str, position: int | None = None) -> Comparison:
    return Comparison(Agreement.STRUCTURE, message, position)


class Tolerance(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far answers may differ, by the precision of the server. In nats (natural logarithms of probabilities)."""

    precision: str
    drift: float  # limit for one log-probability
    rms: float  # limit for the root mean square of a trial
    near_tie: float  # largest gap between the two most likely tokens where texts diverge
    near_ties: float | None = None  # share of cases that diverged during calibration
    source: str = ""  # how it was measured


_MEASURED = (
    "a Llama of 156 K parameters in transformers, llama.cpp and NumPy against transformers in float32: about twice the "
    "largest rounding difference"
)
# Larger models have larger rounding differences and faults; `seatrial calibrate` measures the served model.
TOLERANCES = {
    "f32": Tolerance("f32", drift=8e-3, rms=1e-3, near_tie=8e-3, source=_MEASURED),
    "f16": Tolerance("f16", drift=2e-2, rms=3.5e-3, near_tie=2e-2, source=_MEASURED),
    "bf16": Tolerance("bf16", drift=0.16, rms=3e-2, near_tie=0.16, source=_MEASURED),
    "q8_0": Tolerance("q8_0", drift=0.25, rms=4e-2, near_tie=0.25, source=_MEASURED),
}
PRECISIONS = {
    **{"float32": "f32", "fp32": "f32", "float": "f32", "float16": "f16", "fp16": "f16", "half": "f16"},
    **{"bfloat16": "bf16", "int8": "q8_0", "q8": "q8_0"},
}


def tolerance_for(precision: str, unknown: str | None = None) -> Tolerance:
    """Tolerance by the name or alias of a precision. Otherwise that of `unknown`; raises KeyError without one."""
    name = PRECISIONS.get(precision.lower(), precision.lower())
    return TOLERANCES[name if unknown is None or name in TOLERANCES else unknown]


# Ten thousand answers must be compared in a second or two: pairs of log-probabilities are kept in flat lists, and the
# common case, the same tokens in the same order on both sides, comes first.


ROUNDED = 1e-6  # rounding between two copies of a log-probability in one answer
UNREADABLE = "\ufffd"  # replaces a partial character

_NEVER = -math.inf


class Walk(msgspec.Struct):
    """Two answers token by token, until they diverge. `split` is the first position where the token texts differ or one
    side has ended; None if they never do."""

    length: int  # compared positions
    split: int | None = None
    expected: list[float] = []  # log-probabilities of the same token at the same position, pair by pair
    got: list[float] = []
    starts: list[int] = []  # index of the first pair of each position that has pairs
    places: list[int] = []  # position of each of `starts`
    gaps: list[float] = []  # between the two most likely expected tokens, at each position
    greedy: bool = True  # every expected token is the most likely one at its position
    missing: int | None = None  # first position that lacks expected log-probabilities

    @property
    def moved(self) -> list[float]:
        return list(map(operator.sub, self.got, self.expected))

    def position_of(self, pair: int) -> int:
        """The token position of a pair."""
        index = next((index for index, start in enumerate(self.starts) if start > pair), len(self.starts))
        return self.places[index - 1]


def walk(expected: Sequence[Token], got: Sequence[Token]) -> Walk:
    found = Walk(0)
    xs, ys = found.expected, found.got
    for place, (one, other) in enumerate(zip(expected, got, strict=False)):
        before = len(xs)
        same = same_token(one.text, other.text)
        ones, others = one.top, other.top
        if not ones or not others or not _pair_in_order(ones, others, xs, ys):
            del xs[before:], ys[before:]
            _pair_by_text(one, other, xs, ys)
        elif same and ones[0].text != one.text and not any(top.text == one.text for top in ones):
            _pair(one.logprob, other.logprob, xs, ys)
        if len(xs) > before:
            found.starts.append(before)
            found.places.append(place)
        if len(ones) > 1 and one.logprob is not None:
            first, second = _two_likeliest(ones)
            found.gaps.append(first - second)
            found.greedy = found.greedy and first - one.logprob <= ROUNDED
        if found.missing is None and ((one.logprob is not None and other.logprob is None) or (ones and not others)):
            found.missing = place
        if not same:
            found.split = place
            break
        found.length += 1
    found.greedy = found.greedy and bool(found.gaps)
    if found.split is None and len(expected) != len(got):
        found.split = found.length
    return found


def joined(walks: Iterable[Walk]) -> Walk:
    """The pairs of all walks, concatenated."""
    found = Walk(0)
    for one in walks:
        found.starts += [start + len(found.expected) for start in one.starts]
        found.expected += one.expected
        found.got += one.got
        found.gaps += one.gaps
    return found


def same_token(one: str, other: str) -> bool:
    """Partial characters always count as equal, because engines write them differently; their log-probabilities are
    still compared."""
    return one == other or not (_readable(one) or _readable(other))


def _readable(text: str) -> bool:
    return bool(text) and UNREADABLE not in text and not text.startswith("bytes:\\x")


def _pair(one: float | None, other: float | None, xs: list[float], ys: list[float]) -> None:
    if one is not None and other is not None:
        xs.append(one)
        ys.append(other)


def _pair_in_order(ones: Sequence[TopToken], others: Sequence[TopToken], xs: list[float], ys: list[float]) -> bool:
    """Returns False if the tokens or their order differ."""
    if len(ones) != len(others):
        return False
    for one, other in zip(ones, others, strict=True):
        if one.text != other.text or one.logprob is None or other.logprob is None:
            return False
        xs.append(one.logprob)
        ys.append(other.logprob)
    return True


def _pair_by_text(one: Token, other: Token, xs: list[float], ys: list[float]) -> None:
    """Pairs tokens that both sides list, without duplicate or unreadable texts."""
    theirs: dict[str, float | None] = {}
    for top in other.top:
        theirs[top.text] = None if top.text in theirs or not _readable(top.text) else top.logprob
    theirs.setdefault(other.text, other.logprob)
    named = {top.text for top in one.top}
    for top in one.top:
        _pair(top.logprob, theirs.get(top.text), xs, ys)
    if one.text not in named:
        logprob = theirs.get(one.text)
        _pair(one.logprob, other.logprob if logprob is None and same_token(one.text, other.text) else logprob, xs, ys)


def gap_of(top: Sequence[TopToken]) -> float:
    """Gap between the two most likely tokens; infinite if there are fewer than two."""
    first, second = _two_likeliest(top)
    return first - second if second > _NEVER else math.inf


def behind(token: Token) -> float:
    """How far a token is behind the most likely one at its position; 0 if unknown."""
    if token.logprob is None or not token.top:
        return 0.0
    return _two_likeliest(token.top)[0] - token.logprob


def _two_likeliest(top: Sequence[TopToken]) -> tuple[float, float]:
    first = second = _NEVER
    for one in top:
        logprob = one.logprob
        if logprob is not None and logprob > second:
            if logprob > first:
                first, second = logprob, first
            else:
                second = logprob
    return first, second


# Tool calls.


def other_calls(expected: Sequence[ToolCall], got: Sequence[ToolCall]) -> str:
    """How the tool calls differ; empty if they do not. Arguments are compared as JSON; none are expected if empty."""
    if [call.name for call in expected] != [call.name for call in got]:
        return f"calls {_named(got)} (expected {_named(expected)})"
    for one, other in zip(expected, got, strict=True):
        if one.arguments and not same_json(one.arguments, other.arguments):
            return f"calls {other.name} with {short(other.arguments)} (expected {short(one.arguments)})"
    return ""


def _named(calls: Sequence[ToolCall]) -> str:
    return ", ".join(call.name or "a tool without a name" for call in calls) or "no tool"


def same_json(expected: str, got: str) -> bool:
    try:
        return bool(decode(expected, object) == decode(got, object))
    except Unreadable:
        return expected == got


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"
