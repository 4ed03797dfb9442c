"""Token-by-token diff of two answers, as lines for people."""

import difflib
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from seatrial.kinds.serving.generation import Answer, Failure, Generation, Token
from seatrial.kinds.serving.request import ExpectedError

_FIELDS = (
    ("input_count", "input tokens"),
    ("generated_count", "generated tokens"),
    ("stop_reason", "stop reason"),
    ("stop_sequence", "stop sequence"),
    ("seed", "seed"),
)


def diff_answers(expected: Answer | None, error: ExpectedError | None, got: Answer, least: float = 0.0) -> list[str]:
    """Lines that begin with `-`, `+` or a blank; empty if the answers are equal. Log-probabilities that moved by at
    most `least` count as equal."""
    if error or got.failure or expected is None or expected.tokenizations or got.tokenizations:
        before, after = _lines(expected, error), _lines(got, got.failure)
        return [] if before == after else [f"- {line}" for line in before] + [f"+ {line}" for line in after]
    lines: list[str] = []
    pairs = list(zip_longest(expected.generations, got.generations, fillvalue=Generation()))
    for index, (one, other) in enumerate(pairs):
        inner = list(_generation_lines(one, other, least))
        lines += [f"  answer {index}:"] * bool(len(pairs) > 1 and inner) + inner
    return lines


def _lines(answer: Answer | None, error: ExpectedError | Failure | None) -> list[str]:
    if error is not None:
        return [f"error {error.code or ''}: {error.message or ''}"]
    if answer is None:
        return []
    return [repr(one.text) for one in answer.generations] + [str(one) for one in answer.tokenizations]


def _generation_lines(expected: Generation, got: Generation, least: float) -> Iterator[str]:
    if (expected.text or "") != (got.text or ""):
        yield f"- text {expected.text!r}"
        yield f"+ text {got.text!r}"
    for name, title in _FIELDS:
        one, other = getattr(expected, name), getattr(got, name)
        if (one or None) != (other or None):
            yield f"- {title} {one}"
            yield f"+ {title} {other}"
    for name, title in (("input_tokens", "input token"), ("tokens", "token")):
        yield from _token_lines(title, getattr(expected, name) or (), getattr(got, name) or (), least)


def _token_lines(title: str, ones: Sequence[Token], others: Sequence[Token], least: float) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, [one.text for one in ones], [one.text for one in others], autojunk=False)
    for kind, start, end, from_, to in matcher.get_opcodes():
        if kind == "equal":
            yield from _moved(title, ones[start:end], others[from_:to], start, least)
        else:
            yield from (f"- {title} {place} {_shown(ones[place])}" for place in range(start, end))
            yield from (f"+ {title} {place} {_shown(others[place])}" for place in range(from_, to))


def _moved(title: str, ones: Sequence[Token], others: Sequence[Token], first: int, least: float) -> Iterator[str]:
    """Equal tokens with different log-probabilities or ranks."""
    for place, (one, other) in enumerate(zip(ones, others, strict=True), first):
        theirs = {top.text: top.logprob for top in other.top}
        metrics = [(one.logprob, other.logprob), *((top.logprob, theirs.get(top.text)) for top in one.top)]
        size = max((abs(a - b) for a, b in metrics if a is not None and b is not None), default=0.0)
        known = all((a is None) == (b is None) for a, b in metrics) and len(one.top) == len(other.top)
        if size > least or not known or (one.rank or 0) != (other.rank or 0):
            how = f"moved by {size:.3g}" if known else "different alternatives"
            yield f"  {title} {place} {_shown(one)} -> {_shown(other)}   {how}"


def _shown(token: Token) -> str:
    return repr(token.text) if token.logprob is None else f"{token.text!r} {token.logprob:.5g}"
