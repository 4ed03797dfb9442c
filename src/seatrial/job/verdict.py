"""Verdicts, exit codes and findings, the results of checks."""

from collections.abc import Iterable
from enum import IntEnum, StrEnum

import msgspec

from seatrial.job.reading import JsonObject


class ExitCode(IntEnum):
    """Exit codes of commands that run or check something."""

    PASSED = 0
    FAILED = 1
    USAGE = 2
    INFRA = 3  # nothing else was wrong
    TIMEOUT = 124
    INTERRUPTED = 130


class Verdict(StrEnum):
    """The verdict of a check, an attempt, a cell or a run."""

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
    INTERRUPTED = "interrupted"  # only of a run: some of its cells did not finish

    @property
    def good(self) -> bool:
        """Whether it needs no attention."""
        return EXIT_CODES[self] is ExitCode.PASSED


# The verdicts by precedence, with their exit codes. The first one that any finding of a cell has is the cell's verdict.
# `infra` comes first: results of a broken host cannot be trusted.
EXIT_CODES = {
    Verdict.INTERRUPTED: ExitCode.INTERRUPTED,
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
_CODES_WORST_FIRST = (ExitCode.INTERRUPTED, ExitCode.FAILED, ExitCode.TIMEOUT, ExitCode.INFRA, ExitCode.PASSED)
# The precedence for the cells of a run. Cells are independent, so a failure of one counts more than broken
# infrastructure of another: by exit code, then by the precedence in a cell; of the good verdicts, a pass comes first.
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
    """A check's result. `evidence` is the text that proves it, most relevant line first; `data` is for programs."""

    step: str
    check: str
    verdict: Verdict
    class_: str = msgspec.field(default="", name="class")
    message: str = ""
    evidence: str = ""
    data: JsonObject = {}
