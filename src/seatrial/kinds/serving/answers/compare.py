"""What comparing one answer comes to: a step of the ladder, with the evidence for it."""

import math
import operator
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from seatrial.kinds.serving.generation import Token, TopToken


class Agreement(StrEnum):
    """From the best to the worst. The first two pass."""

    EXACT = "exact"
    NEAR_TIE = "near_tie"  # it went the other way where both ways were about as likely
    DRIFT = "drift"  # the same text, with probabilities that moved too far
    DIVERGED = "diverged"  # another text
    STRUCTURE = "structure"  # counts, stop reason, tokens or the messages of a stream are not what they should be
    ERROR = "error"  # an answer was expected and an error came, or the other way round, or another error

    @property
    def passes(self) -> bool:
        return self in (Agreement.EXACT, Agreement.NEAR_TIE)


_WORST_FIRST = tuple(reversed(Agreement))


class Comparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """`size` is the gap of a near tie or of what diverged, or how far a probability moved; `position` counts tokens
    from 0. The tokens are those at that position, with their likeliest alternatives."""

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
    """The first of the worst; exact for none."""
    return min(comparisons, key=lambda one: _WORST_FIRST.index(one.agreement), default=EXACT)


def structure(message: str, position: int | None = None) -> Comparison:
    return Comparison(Agreement.STRUCTURE, message, position)


# How far answers may be apart, by the precision that the server computes in: data, and what calibration measured.


class Tolerance(msgspec.Struct, frozen=True, omit_defaults=True):
    """In nats, natural logarithms of probabilities."""

    precision: str
    drift: float  # of one log-probability
    rms: float  # of all of a trial: the root of their mean square
    near_tie: float  # between the two likeliest tokens, for a text that went the other way
    near_ties: float | None = None  # share of cases that went the other way, as calibration saw it
    source: str = ""  # where it comes from


_MEASURED = (
    "a Llama of 156 K parameters through transformers, llama.cpp and NumPy against transformers in float32: "
    "about twice the largest difference that was only rounding"
)
# Of larger models both rounding and faults are larger: `seatrial calibrate` measures the one that is served.
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
    """By its name, or one of its other names. For what nobody has measured it is that of `unknown`, or KeyError."""
    name = PRECISIONS.get(precision.lower(), precision.lower())
    return TOLERANCES[name if unknown is None or name in TOLERANCES else unknown]


# Two answers side by side, token by token, as far as they go the same way.
#
# This is where the time goes: ten thousand answers are compared in a second or two. So the pairs of log-probabilities
# are kept in flat lists, and the common case, both sides with the same tokens in the same order, is first.


ROUNDED = 1e-6  # how a log-probability is written twice in one answer
UNREADABLE = "\ufffd"  # in place of a part of a character

_NEVER = -math.inf


class Walk(msgspec.Struct):
    """`split` is the first position where the texts of the tokens differ, or one side has ended; None: nowhere."""

    length: int  # positions that were compared
    split: int | None = None
    expected: list[float] = []  # log-probabilities of the same token at the same position, pair by pair
    got: list[float] = []
    starts: list[int] = []  # the first pair of each position that has one
    places: list[int] = []  # the position of each of those
    gaps: list[float] = []  # between the two likeliest of what is expected, at each position
    greedy: bool = True  # each token that is expected is known to be the likeliest of its position
    missing: int | None = None  # the first position where log-probabilities are expected and not there

    @property
    def moved(self) -> list[float]:
        return list(map(operator.sub, self.got, self.expected))

    def position_of(self, pair: int) -> int:
        """The position that a pair belongs to."""
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
    """What was paired in all of them, one after the other."""
    found = Walk(0)
    for one in walks:
        found.starts += [start + len(found.expected) for start in one.starts]
        found.expected += one.expected
        found.got += one.got
        found.gaps += one.gaps
    return found


def same_token(one: str, other: str) -> bool:
    """Parts of characters, which every engine writes in its own way, cannot be told apart by their text; their
    log-probabilities are compared all the same."""
    return one == other or not (_readable(one) or _readable(other))


def _readable(text: str) -> bool:
    return bool(text) and UNREADABLE not in text and not text.startswith("bytes:\\x")


def _pair(one: float | None, other: float | None, xs: list[float], ys: list[float]) -> None:
    if one is not None and other is not None:
        xs.append(one)
        ys.append(other)


def _pair_in_order(ones: Sequence[TopToken], others: Sequence[TopToken], xs: list[float], ys: list[float]) -> bool:
    """False when the same tokens are not in the same order."""
    if len(ones) != len(others):
        return False
    for one, other in zip(ones, others, strict=True):
        if one.text != other.text or one.logprob is None or other.logprob is None:
            return False
        xs.append(one.logprob)
        ys.append(other.logprob)
    return True


def _pair_by_text(one: Token, other: Token, xs: list[float], ys: list[float]) -> None:
    """Tokens that both sides name. A text that one side has twice, or that cannot be read, is left out."""
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
    """Between the two likeliest; infinite where there are no two."""
    first, second = _two_likeliest(top)
    return first - second if second > _NEVER else math.inf


def behind(token: Token) -> float:
    """How far a token is behind the likeliest of its position, as far as that is known."""
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
