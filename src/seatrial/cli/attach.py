"""`seatrial attach`: takes up a run whose process is gone, or shows one that another process works on."""

from pathlib import Path

import click

from seatrial.cli.options import HISTORY, RUN, RUNS, find_own, history_at, planned
from seatrial.cli.options.notify import NOTIFY, checked_notify


@click.command()
@RUN
@NOTIFY
@HISTORY
@RUNS
def command(run: str, notify: str | None, runs: Path, history: str | None) -> None:
    """Take up RUN (an id, its beginning, a path, or `last`) and finish it. Nothing that was done is done again.

    A run that another process works on is shown live and left alone; Ctrl-C then ends the view, not the run.
    """
    from seatrial.cli.execute import execute, finished, opened, watched
    from seatrial.cli.options.copies import copied
    from seatrial.record import owner_of

    notify = checked_notify(notify)
    folder, kept = find_own(runs, run), history_at(runs, history)
    owner = owner_of(folder.path)
    if owner is not None and owner.works_on(folder.path):
        raise SystemExit(watched(folder, owner, kept))
    done = finished(folder, kept)
    if done is None:
        raise SystemExit(execute(opened(folder), kept, notify=notify))
    raise SystemExit(copied(folder, planned(folder).options.out, done))
