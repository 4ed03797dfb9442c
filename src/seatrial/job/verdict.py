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
        return EXIT_CODES[self] == 0


# The one table of verdicts: which one wins over which, and the exit code that each asks for.
# The first row that any finding of a cell has is the cell's verdict. What broke under the test comes before what the
# test says: nothing that a broken place reported can be trusted.
EXIT_CODES = {
    Verdict.INFRA: 3,
    Verdict.INVALID: 1,
    Verdict.FAILED: 1,
    Verdict.TIMEOUT: 124,
    Verdict.XPASS: 1,
    Verdict.SLOWER: 1,
    Verdict.FASTER: 1,
    Verdict.XFAIL: 0,
    Verdict.PASSED: 0,
    Verdict.SKIPPED: 0,
}
_RANKS = {verdict: rank for rank, verdict in enumerate(EXIT_CODES)}
_CODES_WORST_FIRST = (1, 124, 3, 0)
# The same for the cells of a run. Cells are places of their own, so what a test said of one counts more than a place
# that broke under another: the exit code decides first, then the order in a cell; of what is good, a pass comes first.
CELLS_WORST_FIRST = tuple(
    sorted(
        EXIT_CODES,
        key=lambda verdict: (
            _CODES_WORST_FIRST.index(EXIT_CODES[verdict]),
            verdict in (Verdict.XFAIL, Verdict.SKIPPED),
            _RANKS[verdict],
        ),
    )
)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a cell with findings of these verdicts; `skipped` for none."""
    return min(verdicts, key=_RANKS.__getitem__, default=Verdict.SKIPPED)


def worst_cell(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a run with cells of these verdicts."""
    return min(verdicts, key=CELLS_WORST_FIRST.index, default=Verdict.SKIPPED)


class Finding(msgspec.Struct, frozen=True):
    """A check's result. `evidence` is the text that proves it, its most telling line first; `data` is for programs."""

    step: str
    check: str
    verdict: Verdict
    class_: str = msgspec.field(default="", name="class")
    message: str = ""
    evidence: str = ""
    data: dict[str, Any] = {}
