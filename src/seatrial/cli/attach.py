"""`seatrial attach`: resumes an interrupted run, or watches one that another process owns. `seatrial cancel`."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import click

from seatrial.api import final_results
from seatrial.cli.common import HISTORY, RUN, RUNS, fail, find_own, history_of
from seatrial.cli.common.copies import NOTIFY, checked_notify, copied
from seatrial.record import Owner, RunFolder, RunOwned, owner_of


@click.command()
@RUN
@NOTIFY
@HISTORY
@RUNS
def command(run: str, notify: str | None, runs: Path, history: str | None) -> None:
    """Resume RUN (an id or prefix, a path, or `last`) and finish it. Completed work is not repeated.

    If another process owns the run, show it live; Ctrl-C then stops the view, not the run.
    """
    from seatrial.cli.common.watching import finished, reopened, run_shown, watched

    notify = checked_notify(notify)
    folder, kept = find_own(runs, run), history_of(runs, history)
    for _ in _tries():
        owner = owner_of(folder.path)
        if owner is not None and owner.works_on(folder.path):
            raise SystemExit(watched(folder, owner, kept))
        done = finished(folder, kept)
        if done is not None:
            raise SystemExit(copied(folder, folder.read_plan().options.out, done))
        with contextlib.suppress(RunOwned):  # another process was faster: watch it
            raise SystemExit(run_shown(reopened(folder), kept, notify=notify))
    raise RunOwned(folder.path, owner_of(folder.path))


_PATIENCE_S = 120.0
_RACE_S = 10.0


def _tries() -> Iterator[None]:
    """Until a process that took the run has written its name, which takes an instant."""
    until_s = time.monotonic() + _RACE_S
    while time.monotonic() < until_s:
        yield
        time.sleep(0.05)


@click.command()
@RUN
@HISTORY
@RUNS
def cancel_command(run: str, runs: Path, history: str | None) -> None:
    """Stop RUN (an id or prefix, a path, or `last`): stop its jobs, collect their results, then delete the jobs."""
    from seatrial.cli.common.watching import finished, reopened, run_shown

    folder, kept = find_own(runs, run), history_of(runs, history)
    for _ in _tries():
        owner = owner_of(folder.path)
        if owner and owner.here and owner.works_on(folder.path):
            _stop(folder, owner)
        with contextlib.suppress(RunOwned):  # another process was faster
            if finished(folder, kept, show=False) is None:
                run_shown(reopened(folder), kept, cancel=True)
            click.echo(f"{folder.run} has ended; show it with `seatrial report {folder.run}`")
            return
    raise RunOwned(folder.path, owner_of(folder.path))


def _stop(folder: RunFolder, owner: Owner) -> None:
    """Asks the process to stop its run, and waits for it."""
    over = final_results(folder) is not None  # it is writing its reports: only wait for that
    try:
        if not over:
            os.kill(owner.pid, signal.SIGTERM)
        os.kill(owner.pid, signal.SIGCONT)  # a suspended process would not handle SIGTERM
    except PermissionError:
        fail(f"cannot stop {folder.run}: process {owner.pid} belongs to another user")
    if not over:
        click.echo(f"asked process {owner.pid} to stop {folder.run}", err=True)
    until_s = time.monotonic() + _PATIENCE_S
    while owner.alive():
        if time.monotonic() > until_s:
            text = f"process {owner.pid} is still stopping the jobs of {folder.run} after {_PATIENCE_S:g} s"
            fail(f"{text}; watch it with `seatrial attach {folder.run}`", 3)
        time.sleep(0.1)
