"""Verdicts and findings: what a check says of an observation."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SLOWER = "slower"
    FASTER = "faster"
    INFRA = "infra"
    TIMEOUT = "timeout"
    INVALID = "invalid"
    SKIPPED = "skipped"
    XFAIL = "xfail"
    XPASS = "xpass"

    @property
    def good(self) -> bool:
        """Needs nobody's attention."""
        return self in _GOOD


_GOOD = frozenset({Verdict.PASSED, Verdict.XFAIL, Verdict.SKIPPED})

# The first of these that any finding has is the cell's verdict. What broke under the test comes before what
# the test says: nothing that a broken place reported can be trusted.
_WORST_FIRST = (
    Verdict.INFRA,
    Verdict.INVALID,
    Verdict.FAILED,
    Verdict.TIMEOUT,
    Verdict.XPASS,
    Verdict.SLOWER,
    Verdict.FASTER,
    Verdict.XFAIL,
    Verdict.PASSED,
    Verdict.SKIPPED,
)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that stands for all of these; `skipped` for none."""
    seen = set(verdicts)
    return next((verdict for verdict in _WORST_FIRST if verdict in seen), Verdict.SKIPPED)


class Finding(msgspec.Struct, frozen=True):
    """A check's result. `evidence` is the text that proves it, its most telling line first; `data` is for programs."""

    step: str
    check: str
    verdict: Verdict
    class_: str = msgspec.field(default="", name="class")
    message: str = ""
    evidence: str = ""
    data: dict[str, Any] = {}
