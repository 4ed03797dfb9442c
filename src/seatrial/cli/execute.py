"""The common end of `run`, `attach` and `cancel`: the engine goes, its results are kept and reported."""

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.cli.options import fail

if TYPE_CHECKING:
    from collections.abc import Mapping

    from seatrial.engine import PreparedRun
    from seatrial.job import Bound, RunResults
    from seatrial.record import RunFolder
    from seatrial.record.history import History

GARBAGE = 20_000  # new objects between two looks for what only refers to itself


def execute(prepared: "PreparedRun", history: "History", cancel: bool = False) -> int:
    """Run to the end; the exit code."""
    import asyncio

    from seatrial.engine import Run, RunRefused, RunStopped, SecretError
    from seatrial.job import ExitCode
    from seatrial.record import JournalError, Owned
    from seatrial.report.terminal.live import watching

    folder = prepared.folder
    # What was loaded and planned stays to the end: it need not be looked through for garbage after every few objects.
    gc.freeze()
    gc.set_threshold(GARBAGE)
    try:
        with watching(prepared.plan.cells, prepared.plan.holes) as listener:
            results = asyncio.run(Run(prepared, listener, cancel).execute())
    except (SecretError, Owned, RunRefused) as error:
        fail(str(error), ExitCode.USAGE)
    except JournalError as error:
        fail(
            f"{error}\nthis run cannot be taken up; `seatrial reap {folder.run}` removes what is left of it",
            ExitCode.INFRA,
        )
    except RunStopped as error:
        fail(f"the run stopped: {error}\nnothing is lost: `seatrial attach {folder.run}` takes it up", ExitCode.INFRA)
    bounds = {cell.benchmark: cell.bounds for cell in prepared.plan.cells if cell.bounds}
    _keep(folder, results, history, bounds)
    _tell(folder, results)
    return results.exit_code


def finished(folder: "RunFolder", history: "History", show: bool = True) -> int | None:
    """The exit code of a run that came to its end, told once more; None when it did not."""
    from seatrial.job import ExitCode
    from seatrial.record import JournalError, read_journal

    try:
        entries, _ = read_journal(folder.journal) if folder.journal.exists() else ([], 0)
    except JournalError as error:
        fail(str(error), ExitCode.INFRA)
    results = folder.read_results()
    if results is None or not any(entry["event"] == "finished" for entry in entries):
        return None
    if not (folder.path / "report.html").exists():  # the last that is written; killed before it
        _keep(folder, results, history, {})
    if show:
        click.echo(f"{folder.run} has finished already", err=True)
        _tell(folder, results)
    return results.exit_code


def opened(folder: "RunFolder") -> "PreparedRun":
    from seatrial.engine import PlanChanged, reopen
    from seatrial.job import ExitCode
    from seatrial.record import DamagedRun, owner_of
    from seatrial.suite import SuiteError

    owner = owner_of(folder.path)
    if owner is not None and not owner.here:
        who = f"process {owner.pid} on {owner.host}, which cannot be looked for from here"
        click.echo(f"seatrial: {folder.run} was last worked on by {who}", err=True)
    try:
        return reopen(folder)
    except (PlanChanged, SuiteError) as error:
        fail(str(error))
    except DamagedRun as error:
        fail(str(error), ExitCode.INFRA)


def detached(prepared: "PreparedRun", runs: Path, history: str | None) -> None:
    """Another process, in a session of its own, takes the run up; what it would have printed is in the run folder."""
    with open(prepared.folder.path / "console.txt", "ab") as console:
        subprocess.Popen(
            [sys.executable, "-m", "seatrial", "attach", str(prepared.folder.path), "--runs", str(runs)],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
            env={**os.environ, "SEATRIAL_HISTORY": history} if history else os.environ,  # it may hold a password
        )
    click.echo(prepared.folder.run)


def _keep(
    folder: "RunFolder", results: "RunResults", history: "History", bounds: "Mapping[str, tuple[Bound, ...]]"
) -> None:
    """Reports and history. Neither may take the results away from the user: they are on disk already."""
    from seatrial.job import figures
    from seatrial.record.history import HistoryError
    from seatrial.report import ReportError, write_reports

    try:
        history.add(results)
        if any(figure.better for cell in results.cells for figure in figures(cell.metrics)):
            from seatrial.report.trend.series import run_series, write_series

            write_series(folder.path, run_series(history, results, bounds))
    except HistoryError as error:
        click.echo(f"seatrial: the history was not added to: {error}", err=True)
    try:
        write_reports(folder.path, results)
    except ReportError as error:
        click.echo(f"seatrial: {error}", err=True)


def _tell(folder: "RunFolder", results: "RunResults") -> None:
    from seatrial.report.terminal.summary import print_summary

    print_summary(results, folder.path)
