"""`seatrial cancel`: stops a run."""

import os
import signal
import time
from pathlib import Path

import click

from seatrial.cli.options import RUNS, find


@click.command()
@click.argument("run")
@RUNS
def command(run: str, runs: Path) -> None:
    """Stop RUN: what runs is ended and collected, nothing new starts, nothing is left behind."""
    from seatrial.cli.execute import execute, finished, opened
    from seatrial.record import owner_of

    folder = find(runs, run)
    owner = owner_of(folder.path)
    if owner and owner.alive():
        os.kill(owner.pid, signal.SIGINT)
        click.echo(f"asked process {owner.pid} to stop {folder.run}", err=True)
        while owner.alive():
            time.sleep(0.1)
    elif finished(folder, show=False) is None:
        execute(opened(folder), runs, cancel=True)
    click.echo(f"{folder.run} has ended; `seatrial report {folder.run}` shows it")
