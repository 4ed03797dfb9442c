"""What comparing one answer comes to: a step of the ladder, with the evidence for it."""

from enum import StrEnum
from typing import Any

import msgspec

from seatrial.job.generation import Token


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

    def data(self) -> dict[str, Any]:
        """For programs: the form of a `token-diff`."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


EXACT = Comparison(Agreement.EXACT)


def worst_of(comparisons: list[Comparison]) -> Comparison:
    """The first of the worst; exact for none."""
    return min(comparisons, key=lambda one: _WORST_FIRST.index(one.agreement), default=EXACT)


def structure(message: str, position: int | None = None) -> Comparison:
    return Comparison(Agreement.STRUCTURE, message, position)
