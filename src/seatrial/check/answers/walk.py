"""Two answers side by side, token by token, as far as they go the same way.

This is where the time goes: ten thousand answers are compared in a second or two. So the pairs of log-probabilities
are kept in flat lists, and the common case, both sides with the same tokens in the same order, is first."""

import math
import operator
from collections.abc import Iterable, Sequence

import msgspec

from seatrial.job.generation import Token, TopToken

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
    found = Walk(0, expected=[], got=[], starts=[], places=[], gaps=[])
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
    found = Walk(0, expected=[], got=[], starts=[], gaps=[])
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
