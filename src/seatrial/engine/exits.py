"""The exit code that a run's verdicts come to."""

from seatrial.job import RunResults, Verdict

INTERRUPTED = 130
INFRA = 3
USAGE = 2
TIMEOUT = 124


def exit_code(results: RunResults) -> int:
    """What the tests said comes first; then time, then infrastructure: 3 means that nothing else was wrong."""
    seen = {cell.verdict for cell in results.cells}
    if results.interrupted:
        return INTERRUPTED
    if seen - {Verdict.PASSED, Verdict.XFAIL, Verdict.SKIPPED, Verdict.INFRA, Verdict.TIMEOUT}:
        return 1
    if any(not cell.attempts for cell in results.cells):  # never started: a limit of the run was reached
        return 1
    if Verdict.TIMEOUT in seen:
        return TIMEOUT
    return INFRA if Verdict.INFRA in seen else 0
