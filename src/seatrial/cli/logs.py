"""`seatrial logs`: shows the logs of a run's jobs, also while they run."""

import asyncio
import signal
import sys
from pathlib import Path

import click

from seatrial.api import find
from seatrial.cli.common import RUN, RUNS, cells_of, complete_cell, fail, say
from seatrial.engine import LogSource, RunLogs
from seatrial.job import ExitCode
from seatrial.job.plan import PlannedCell
from seatrial.plan import PlanError
from seatrial.record import DamagedRun, RecordError, RunFolder
from seatrial.report.terminal.lines import LogPrinter


@click.command()
@RUN
@click.argument("cell", required=False, shell_complete=complete_cell)
@click.option("-f", "--follow", is_flag=True, help="Follow the logs until the jobs end.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Attempt to show.  [default: the last]")
@RUNS
def command(run: str, cell: str | None, follow: bool, attempt: int | None, runs: Path) -> None:
    """Show the logs of RUN, or only of CELL: an id, a glob, axis=value, or / and a hash prefix.

    Shows all parts and hosts, on any target, without disturbing running jobs. With several cells or parts, each line
    starts with its cell. With -f and without CELL, shows running cells and those that start later.
    """
    if follow and attempt:
        fail("--attempt cannot be combined with --follow")
    folder = find(runs, run)
    cells = cells_of(folder, cell)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # so that targets are closed properly
    try:
        problems = asyncio.run(_show(folder, cells, follow, ended_too=cell is not None, attempt=attempt))
    except (RecordError, DamagedRun, PlanError) as error:
        fail(str(error), ExitCode.INFRA)
    except BrokenPipeError:
        sys.stderr.close()  # the reader closed the pipe
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        raise SystemExit(ExitCode.INTERRUPTED) from None
    raise SystemExit(ExitCode.INFRA if problems else ExitCode.PASSED)


async def _show(folder: RunFolder, cells: list[PlannedCell], follow: bool, ended_too: bool, attempt: int | None) -> int:
    """Returns how many logs could not be read."""
    ids = {cell.hash: cell.id for cell in cells}
    problems = 0
    async with RunLogs(folder, ids) as logs:
        printer = LogPrinter(sys.stdout)
        shown = False
        async for piece in logs.follow(ended_too) if follow else logs.now(attempt):
            shown = True
            if piece.problem:
                problems += 1
                say(f"{_name(ids, piece.source)}: {piece.problem}")
            else:
                named = len(cells) > 1 or piece.source.part != "job"
                printer.write(_name(ids, piece.source) if named else "", piece.data)
        printer.close()
    for problem in logs.unread_secrets:
        say(f"warning: if another job prints this secret, it is not masked: {problem}")
    if not shown and follow and not ended_too and logs.over():
        say(f"every cell has ended; show their logs with `seatrial logs {folder.run}`")
    elif not shown:
        what = cells[0].id if len(cells) == 1 else folder.run
        say(f"no log of {what}{f', attempt {attempt}' if attempt else ''} yet: it has not started")
    return problems


def _name(ids: dict[str, str], source: LogSource) -> str:
    again = f" #{source.attempt}" if source.attempt > 1 else ""
    return ids[source.cell] + ("" if source.part == "job" else f" {source.part}") + again
