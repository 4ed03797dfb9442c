"""`seatrial attach`: takes up a run whose process is gone."""

from pathlib import Path

import click

from seatrial.cli.options import HISTORY, RUNS, find, history_at


@click.command()
@click.argument("run")
@HISTORY
@RUNS
def command(run: str, runs: Path, history: str | None) -> None:
    """Take up RUN (an id, its beginning, a path, or `last`) and finish it. Nothing that was done is done again."""
    from seatrial.cli.execute import execute, finished, opened

    folder, kept = find(runs, run), history_at(runs, history)
    done = finished(folder, kept)
    raise SystemExit(execute(opened(folder), kept) if done is None else done)
