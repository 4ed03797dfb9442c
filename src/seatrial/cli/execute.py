"""The common end of `run`, `attach` and `cancel`: the engine goes, its results are kept and reported."""

import gc
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.cli.common import fail, planned
from seatrial.cli.common.copies import copied, notified

if TYPE_CHECKING:
    from collections.abc import Mapping

    from seatrial.engine import PreparedRun
    from seatrial.job import Bound, RunResults
    from seatrial.record import LiveWriter, Owner, RunFolder
    from seatrial.record.history import History
    from seatrial.report.terminal.live import Watching

_POLL_S = 0.05
BEGIN_S = 60.0  # for another process to take a run up
_WATCH_S = 0.25  # between two looks at a run that another process works on
_GARBAGE = 20_000  # new objects between two looks for what only refers to itself


class _Both:
    """Who started the run sees it, and so does whoever else looks at its folder."""

    def __init__(self, shown: "Watching", live: "LiveWriter") -> None:
        self._shown, self._live = shown, live

    def update(self, cell: str, state: str, progress: str = "") -> None:
        self._shown.update(cell, state, progress)
        self._live.update(cell, state, progress)


def execute(prepared: "PreparedRun", history: "History", cancel: bool = False, notify: str = "") -> int:
    """Run to the end; the exit code. It is this process's until its reports are there, too: whoever attaches before
    would write them at the same time."""
    from seatrial.job import ExitCode
    from seatrial.record import Owned, Ownership

    try:
        ownership = Ownership.take(prepared.folder.path)
    except Owned as error:
        fail(str(error), ExitCode.USAGE)
    try:
        return _execute(prepared, history, cancel, notify)
    finally:
        ownership.release()


def _execute(prepared: "PreparedRun", history: "History", cancel: bool, notify: str) -> int:
    import asyncio

    from seatrial.engine import Run, RunRefused, RunStopped, SecretError
    from seatrial.job import ExitCode
    from seatrial.record import JournalError, LiveWriter
    from seatrial.report.terminal.live import live_view

    folder, plan = prepared.folder, prepared.plan
    expected = {cell.id: cell.estimate_s for cell in plan.cells if cell.estimate_s is not None}
    # What was loaded and planned stays to the end: it need not be looked through for garbage after every few objects.
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    try:
        with (
            live_view(plan.cells, plan.holes, expected, plan.labels) as shown,
            closing(LiveWriter(folder.path)) as live,
        ):
            results = asyncio.run(Run(prepared, _Both(shown, live), cancel).execute(owned=True))
    except (SecretError, RunRefused) as error:
        fail(str(error), ExitCode.USAGE)
    except JournalError as error:
        fail(
            f"{error}\nthis run cannot be taken up; `seatrial reap {folder.run}` removes what is left of it",
            ExitCode.INFRA,
        )
    except RunStopped as error:
        then = f"nothing is lost: `seatrial attach {folder.run}` takes it up"
        if not folder.plan.exists():
            then = f"what was known of the run is lost with its folder; `seatrial reap {folder.run}` removes its jobs"
        fail(f"the run stopped: {error}\n{then}", ExitCode.INFRA)
    bounds = {cell.benchmark: cell.bounds for cell in plan.cells if cell.bounds}
    results = _keep(folder, results, history, bounds, bool(prepared.options.against))
    _tell(folder, results)
    notified(notify, results)
    code = _strictly(results, history) if prepared.options.strict else results.exit_code
    return copied(folder, prepared.options.out, code)


def _strictly(results: "RunResults", history: "History") -> int:
    """The exit code of a run that must leave nothing open."""
    from seatrial.job import ExitCode
    from seatrial.record.history import HistoryError
    from seatrial.report.view.series import POINTS_SHOWN, open_regressions, unbounded_figures

    found = unbounded_figures(results)
    try:
        found += open_regressions(history.filled(history.names(run=results.run, judged=True), POINTS_SHOWN))
    except HistoryError as error:
        found.append(f"whether a regression is open is not known: {error}")
    for line in found:
        click.echo(f"strict: {line}", err=True)
    return ExitCode.FAILED if found and results.exit_code == ExitCode.PASSED else results.exit_code


def final_results(folder: "RunFolder") -> "RunResults | None":
    """Of a run that came to its end; None when it did not."""
    from seatrial.job import ExitCode
    from seatrial.record import JournalError, read_journal

    try:
        entries, _ = read_journal(folder.journal) if folder.journal.exists() else ([], 0)
    except JournalError as error:
        fail(str(error), ExitCode.INFRA)
    return folder.read_results() if any(entry["event"] == "finished" for entry in entries) else None


def finished(folder: "RunFolder", history: "History", show: bool = True, note: bool = True) -> int | None:
    """The exit code of a run that came to its end, told once more; None when it did not."""
    results = final_results(folder)
    if results is None:
        return None
    if not (folder.path / "report.html").exists():  # the last that is written; killed before it
        results = _keep(folder, results, history, {}, bool(planned(folder).options.against))
    if show:
        if note:
            click.echo(f"{folder.run} has finished already", err=True)
        _tell(folder, results)
    return _strictly(results, history) if planned(folder).options.strict else results.exit_code


def watched(folder: "RunFolder", owner: "Owner", history: "History") -> int:
    """Show a run that another process works on, to its end; the exit code. Nothing is done to it."""
    import signal

    from seatrial.job import ExitCode

    who = f"process {owner.pid}" if owner.here else f"process {owner.pid} on {owner.host}"
    click.echo(f"watching {folder.run}, which {who} runs; Ctrl-C ends the view, not the run", err=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the terminal is to be left as it was
    try:
        _watch(folder, owner)
    except KeyboardInterrupt:
        fail(f"{folder.run} goes on; `seatrial cancel {folder.run}` stops it", ExitCode.INTERRUPTED)
    done = finished(folder, history, note=False)
    if done is None:
        takes_up = f"`seatrial attach {folder.run}` takes it up"
        fail(f"{who} is gone, and {folder.run} is not finished; {takes_up}", ExitCode.INFRA)
    return done


def _watch(folder: "RunFolder", owner: "Owner") -> None:
    from seatrial.record import LiveReader
    from seatrial.report.terminal.live import live_view
    from seatrial.report.view.live import monotonic_of

    plan = planned(folder)
    expected = {cell.id: cell.estimate_s for cell in plan.cells if cell.estimate_s is not None}
    reader = LiveReader(folder.path)
    with live_view(plan.cells, plan.holes, expected, plan.axes) as shown:
        working = True
        while working:
            working = owner.works_on(folder.path)  # before the last look: what it wrote is then all there
            for change in reader.changes():
                shown.update(change.cell, change.state, change.progress, monotonic_of(change.at_s))
            if working:
                time.sleep(_WATCH_S)


def opened(folder: "RunFolder") -> "PreparedRun":
    from seatrial.engine import reopen
    from seatrial.job import ExitCode
    from seatrial.plan import PlanError
    from seatrial.record import DamagedRun, owner_of

    owner = owner_of(folder.path)
    if owner is not None and not owner.here:
        who = f"process {owner.pid} on {owner.host}, which cannot be looked for from here"
        click.echo(f"seatrial: {folder.run} was last worked on by {who}", err=True)
    try:
        return reopen(folder)
    except PlanError as error:
        fail(str(error))
    except DamagedRun as error:
        fail(str(error), ExitCode.INFRA)


def detached(prepared: "PreparedRun", runs: Path, history: str | None, notify: str = "") -> None:
    """Another process, in a session of its own, takes the run up; what it would have printed is in the run folder."""
    from seatrial.record import owner_of

    # Not as options: an address may hold a password, and options are for everybody to see.
    given = {"SEATRIAL_HISTORY": history or "", "SEATRIAL_NOTIFY": notify}
    environment = {**os.environ, **{name: value for name, value in given.items() if value}}
    path = prepared.folder.path / "console.txt"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as console:
        process = subprocess.Popen(
            [sys.executable, "-m", "seatrial", "attach", str(prepared.folder.path), "--runs", str(runs)],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
            env=environment,
        )
    until_s = time.monotonic() + BEGIN_S
    # Whoever attaches from now on watches it, instead of taking it away from a process that is just about to begin.
    while process.poll() is None and time.monotonic() < until_s:
        owner = owner_of(prepared.folder.path)
        if owner is not None and owner.pid == process.pid:
            break
        time.sleep(_POLL_S)
    click.echo(prepared.folder.run)


def _keep(
    folder: "RunFolder",
    results: "RunResults",
    history: "History",
    bounds: "Mapping[str, tuple[Bound, ...]]",
    against: bool,
) -> "RunResults":
    """News, reports and history; the results with their news. None of it may take the results away from the user: they
    are on disk already."""
    from seatrial.job import figures
    from seatrial.record.history import HistoryError, add_missed, add_or_mark
    from seatrial.report import ReportError, write_reports

    results = _compared(folder, results, history, against)
    try:
        add_or_mark(folder, results, history)
        late = add_missed(folder.path.parent, history)
        if late:
            click.echo(
                f"seatrial: also added to the history, which was away when they ended: {', '.join(late)}", err=True
            )
        if any(figure.better for cell in results.cells for figure in figures(cell.metrics)):
            from seatrial.report.view.series import run_series, write_series

            write_series(folder.path, run_series(history, results, bounds))
    except HistoryError as error:
        later = "the next run that can reach it adds this one, too, as does `seatrial history add`"
        click.echo(f"seatrial: the history was not added to: {error}\n{later}", err=True)
    try:
        write_reports(folder.path, results)
    except ReportError as error:
        click.echo(f"seatrial: {error}", err=True)
    return results


def _compared(folder: "RunFolder", results: "RunResults", history: "History", against: bool) -> "RunResults":
    """The results with what is new in them, also on the disk; as they are where that cannot be found out."""
    from seatrial.job import RunResults, Unreadable, read_json
    from seatrial.record.history import HistoryError
    from seatrial.report.view.changes import past_of_run, with_news

    try:
        if against:
            before = read_json(folder.against, RunResults)
            results = with_news(results, past_of_run(before), before.run)
        else:
            results = with_news(results, history.past(results))
        folder.write_results(results)
    except (HistoryError, Unreadable, OSError) as error:
        click.echo(f"seatrial: what is new in this run is not known: {error}", err=True)
    return results


def _tell(folder: "RunFolder", results: "RunResults") -> None:
    from seatrial.report.terminal.summary import print_summary

    print_summary(results, folder.path)
