"""Shows a run of this or another process until it ends: signals, detaching, summary and exit code."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import click

from seatrial.api import Cancellation, execute, finished_results, keep_results
from seatrial.cli.common import fail, say
from seatrial.cli.common.copies import copied, notified
from seatrial.engine import PreparedRun, RunStopped, reopen, thread_limit
from seatrial.job import ExitCode, RunResults
from seatrial.record import LiveReader, Owner, Ownership, RecordError, RunFolder, owner_of
from seatrial.record.history import History, HistoryError
from seatrial.report.terminal.live import Watching, live_view
from seatrial.report.terminal.summary import print_summary
from seatrial.report.view.live import monotonic_of
from seatrial.report.view.series import POINTS_SHOWN, open_regressions, unbounded_metrics

_POLL_S = 0.05
BEGIN_S = 60.0  # time for the detached process to take ownership of the run
_WATCH_S = 0.25  # poll interval for a run that another process owns
_GARBAGE = 20_000  # new objects between two garbage collections
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_shown(prepared: PreparedRun, history: History, cancel: bool = False, notify: str = "") -> int:
    """Runs to the end, writes the reports and returns the exit code."""
    with contextlib.closing(Ownership.take(prepared.folder.path)):
        results = keep_results(prepared, _executed(prepared, cancel), history, say)
        code = _summarize(results, prepared.folder.path, history, prepared.options.strict)
        notified(notify, results)
        return copied(prepared.folder, prepared.options.out, code)


def _summarize(results: RunResults, folder: Path, history: History, strict: bool) -> int:
    """Prints the summary and returns the exit code: 1 also for what --strict finds. A closed pipe (`| head`) does not
    change it."""
    found = _strictly(results, history) if strict else []
    for line in found:
        click.echo(f"strict: {line}", err=True)
    try:
        print_summary(results, folder, strict=len(found))
        sys.stdout.flush()
    except BrokenPipeError:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 1)
    return ExitCode.FAILED if found and results.exit_code == ExitCode.PASSED else results.exit_code


def _executed(prepared: PreparedRun, cancel: bool) -> RunResults:
    folder, plan = prepared.folder, prepared.plan
    expected = {cell.id: cell.estimate_s for cell in plan.cells if cell.estimate_s is not None}
    # The suite and plan live until the end: keep them out of garbage collection.
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    cancellation = Cancellation()
    if cancel:
        cancellation.request()
    try:
        with live_view(plan.cells, plan.excluded, expected, plan.labels) as shown:
            return asyncio.run(_interruptible(prepared, shown, cancellation))
    except RecordError as error:
        then = f"to give up the run, delete its jobs with `seatrial reap {folder.run}`"
        fail(f"{error}\n{then}", ExitCode.INFRA)
    except (RunStopped, RuntimeError) as error:  # RuntimeError: asyncio starts a thread to end its threads
        if not isinstance(error, RunStopped) and not thread_limit(error):
            raise
        then = f"no results are lost; resume with `seatrial attach {folder.run}`"
        if not folder.plan.exists():
            then = f"the run folder and its results are gone; delete the run's jobs with `seatrial reap {folder.run}`"
        fail(f"the run stopped: {thread_limit(error) or error}\n{then}", ExitCode.INFRA)


async def _interruptible(prepared: PreparedRun, shown: Watching, cancel: Cancellation) -> RunResults:
    """A signal cancels the run. Ctrl-C a second time exits immediately; attach can still resume the run."""
    pressed = 0

    def interrupt(number: signal.Signals) -> None:
        nonlocal pressed
        pressed += number == signal.SIGINT
        if pressed > 1:
            shown.update("", "left", f"resume with `seatrial attach {prepared.folder.run}`")
            os._exit(130)
        cancel.request()

    loop = asyncio.get_running_loop()
    for number in _INTERRUPTS:
        loop.add_signal_handler(number, interrupt, number)
    try:
        return await execute(prepared, _WithAdvice(shown), cancel)
    finally:
        for number in _INTERRUPTS:
            loop.remove_signal_handler(number)


@dataclass
class _WithAdvice:
    shown: Watching

    def update(self, cell: str, state: str, progress: str = "") -> None:
        advice = "; press Ctrl-C again to exit immediately" if not cell and state == "interrupted" else ""
        self.shown.update(cell, state, f"{progress}{advice}")


def _strictly(results: RunResults, history: History) -> list[str]:
    """What --strict also fails for: metrics without bounds and open regressions."""
    found = unbounded_metrics(results)
    try:
        found += open_regressions(history.filled(history.names(run=results.run, judged=True), POINTS_SHOWN))
    except HistoryError as error:
        found.append(f"open regressions not checked: {error}")
    return found


def finished(folder: RunFolder, history: History, show: bool = True, note: bool = True) -> int | None:
    """Prints a finished run again and returns its exit code; None if it has not finished."""
    results = finished_results(folder, history, say)
    if results is None:
        return None
    if not show:
        return results.exit_code
    if note:
        click.echo(f"{folder.run} has already finished", err=True)
    return _summarize(results, folder.path, history, folder.read_plan().options.strict)


def watched(folder: RunFolder, owner: Owner, history: History) -> int:
    """Shows a run that another process owns until it ends, without changing it; returns the exit code."""
    who = f"process {owner.pid}" if owner.here else f"process {owner.pid} on {owner.host}"
    click.echo(f"watching {folder.run} (owned by {who}); Ctrl-C stops the view, not the run", err=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # so that the terminal is restored
    try:
        _watch(folder, owner)
    except KeyboardInterrupt:
        fail(f"{folder.run} is still in progress; stop it with `seatrial cancel {folder.run}`", ExitCode.INTERRUPTED)
    done = finished(folder, history, note=False)
    if done is None:
        resume = f"resume with `seatrial attach {folder.run}`"
        fail(f"{who} exited before {folder.run} finished; {resume}", ExitCode.INFRA)
    return done


def _watch(folder: RunFolder, owner: Owner) -> None:
    plan = folder.read_plan()
    expected = {cell.id: cell.estimate_s for cell in plan.cells if cell.estimate_s is not None}
    reader = LiveReader(folder.path)
    with live_view(plan.cells, plan.excluded, expected, plan.axes) as shown:
        working = True
        while working:
            working = owner.works_on(folder.path)  # before reading, so that the last read sees everything
            for change in reader.changes():
                shown.update(change.cell, change.state, change.progress, monotonic_of(change.at_s))
            if working:
                time.sleep(_WATCH_S)


def reopened(folder: RunFolder) -> PreparedRun:
    owner = owner_of(folder.path)
    if owner is not None and not owner.here:
        who = f"process {owner.pid} on {owner.host}"
        say(f"{folder.run} was last owned by {who}; cannot check from here whether that process is alive")
    return reopen(folder)


def detached(prepared: PreparedRun, runs: Path, history: str | None, notify: str = "") -> None:
    """Starts a background process that runs `attach`; its output goes to console.txt in the run folder."""
    # Not as options: an address may hold a password, and other users can see the options of a process.
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
    # Wait until the child owns the run, so that `attach` watches it instead of taking over.
    while process.poll() is None and time.monotonic() < until_s:
        owner = owner_of(prepared.folder.path)
        if owner is not None and owner.pid == process.pid:
            break
        time.sleep(_POLL_S)
    click.echo(prepared.folder.run)
