"""The exit code that a run's verdicts come to."""

from seatrial.job import EXIT_CODES, RunResults, worst_cell

INTERRUPTED = 130
INFRA = 3
USAGE = 2


def exit_code(results: RunResults) -> int:
    """What the tests said comes first; then time, then infrastructure: 3 means that nothing else was wrong."""
    if results.interrupted:
        return INTERRUPTED
    code = EXIT_CODES[worst_cell(cell.verdict for cell in results.cells)]
    never_started = any(not cell.attempts for cell in results.cells)  # a limit of the run was reached
    return 1 if never_started else code
