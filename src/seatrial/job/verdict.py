"""Verdicts and findings: what a check says of an observation."""

from collections.abc import Iterable
from enum import IntEnum, StrEnum

import msgspec

from seatrial.job.reading import JsonObject


class ExitCode(IntEnum):
    """Of commands that run or judge something."""

    PASSED = 0
    FAILED = 1
    USAGE = 2
    INFRA = 3  # nothing else was wrong
    TIMEOUT = 124
    INTERRUPTED = 130


class Verdict(StrEnum):
    """Of a check, an attempt, a cell and a run."""

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
        """Needs no attention."""
        return EXIT_CODES[self] is ExitCode.PASSED


# The one table of verdicts: which one wins over which, and the exit code that each asks for.
# The first row that any finding of a cell has is the cell's verdict. What broke under the test comes before what the
# test says: nothing that a broken place reported can be trusted.
EXIT_CODES = {
    Verdict.INFRA: ExitCode.INFRA,
    Verdict.INVALID: ExitCode.FAILED,
    Verdict.FAILED: ExitCode.FAILED,
    Verdict.TIMEOUT: ExitCode.TIMEOUT,
    Verdict.XPASS: ExitCode.FAILED,
    Verdict.SLOWER: ExitCode.FAILED,
    Verdict.FASTER: ExitCode.FAILED,
    Verdict.XFAIL: ExitCode.PASSED,
    Verdict.PASSED: ExitCode.PASSED,
    Verdict.SKIPPED: ExitCode.PASSED,
}
_RANKS = {verdict: rank for rank, verdict in enumerate(EXIT_CODES)}
_CODES_WORST_FIRST = (ExitCode.FAILED, ExitCode.TIMEOUT, ExitCode.INFRA, ExitCode.PASSED)
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
    data: JsonObject = {}
