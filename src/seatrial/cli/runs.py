"""`seatrial runs`: the runs that are there."""

import sys
from pathlib import Path

import click

from seatrial.cli.options import RUNS, print_json

_LAST = 20


@click.command()
@click.option("--last", metavar="N", type=click.IntRange(min=1), default=_LAST, show_default=True, help="How many.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@RUNS
def command(last: int, as_json: bool, runs: Path) -> None:
    """List runs, the newest first: what each came to, or how far it is and who works on it."""
    from seatrial.record import run_overviews
    from seatrial.report.terminal.lines import is_ascii, paint, wants_colour
    from seatrial.report.terminal.runs import runs_lines

    found, there = run_overviews(runs, last)
    if as_json:
        print_json({"runs": found, "there": there})
    elif not found:
        click.echo(f"there are no runs in {runs} yet: `seatrial run SUITE` makes one")
    else:
        sys.stdout.write(paint(runs_lines(found, there), wants_colour(sys.stdout), is_ascii(sys.stdout)))
