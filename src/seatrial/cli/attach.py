"""`seatrial attach`: takes up a run whose process is gone, or shows one that another process works on."""

import os
import signal
import time
from pathlib import Path

import click

from seatrial.api import final_results
from seatrial.cli.common import HISTORY, RUN, RUNS, fail, find_own, history_of
from seatrial.cli.common.copies import NOTIFY, checked_notify, copied
from seatrial.record import owner_of


@click.command()
@RUN
@NOTIFY
@HISTORY
@RUNS
def command(run: str, notify: str | None, runs: Path, history: str | None) -> None:
    """Take up RUN (an id, its beginning, a path, or `last`) and finish it. Nothing that was done is done again.

    A run that another process works on is shown live and left alone; Ctrl-C then ends the view, not the run.
    """
    from seatrial.cli.common.watching import finished, reopened, run_shown, watched

    notify = checked_notify(notify)
    folder, kept = find_own(runs, run), history_of(runs, history)
    owner = owner_of(folder.path)
    if owner is not None and owner.works_on(folder.path):
        raise SystemExit(watched(folder, owner, kept))
    done = finished(folder, kept)
    if done is None:
        raise SystemExit(run_shown(reopened(folder), kept, notify=notify))
    raise SystemExit(copied(folder, folder.read_plan().options.out, done))


# `seatrial cancel`: stops a run.


_PATIENCE_S = 120.0


@click.command()
@RUN
@HISTORY
@RUNS
def cancel_command(run: str, runs: Path, history: str | None) -> None:
    """Stop RUN: what runs is ended and collected, nothing new starts, nothing is left behind."""
    from seatrial.cli.common.watching import finished, reopened, run_shown

    folder, kept = find_own(runs, run), history_of(runs, history)
    owner = owner_of(folder.path)
    if owner and owner.alive():
        over = final_results(folder) is not None  # then it writes its reports, which is to be waited for
        try:
            if not over:
                os.kill(owner.pid, signal.SIGINT)
            os.kill(owner.pid, signal.SIGCONT)  # one that was stopped would never hear it
        except PermissionError:
            fail(f"process {owner.pid}, which runs {folder.run}, belongs to another user")
        if not over:
            click.echo(f"asked process {owner.pid} to stop {folder.run}", err=True)
        until_s = time.monotonic() + _PATIENCE_S
        while owner.alive():
            if time.monotonic() > until_s:
                fail(f"process {owner.pid} has not stopped within {_PATIENCE_S:g} s; jobs may be using their grace", 3)
            time.sleep(0.1)
    elif finished(folder, kept, show=False) is None:
        run_shown(reopened(folder), kept, cancel=True)
    click.echo(f"{folder.run} has ended; `seatrial report {folder.run}` shows it")
