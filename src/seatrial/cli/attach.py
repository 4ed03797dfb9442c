"""`seatrial attach`: takes up a run whose process is gone."""

from pathlib import Path

import click

from seatrial.cli.options import RUNS, find


@click.command()
@click.argument("run")
@RUNS
def command(run: str, runs: Path) -> None:
    """Take up RUN (an id, its beginning, a path, or `last`) and finish it. Nothing that was done is done again."""
    from seatrial.cli.execute import execute, finished, opened

    folder = find(runs, run)
    done = finished(folder, runs)
    raise SystemExit(execute(opened(folder), runs) if done is None else done)
