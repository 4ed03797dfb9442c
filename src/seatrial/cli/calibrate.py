"""`seatrial calibrate`: measures how far the answers of a trusted server are apart when nothing is wrong."""

import os
import time
from pathlib import Path

import click
import msgspec

from seatrial.cli.common import RUNS, fail
from seatrial.cli.record import ask_trusted
from seatrial.kinds.serving.answers.drift import Calibrated, Tolerance
from seatrial.kinds.serving.recording import calibrate_cells
from seatrial.kinds.serving.tolerances import with_tolerances
from seatrial.record import write_whole


@click.command()
@click.argument("suite", type=click.Path(path_type=Path))
@click.option("--select", multiple=True, metavar="EXPR", help="Cells by id glob, axis=value or /hash.")
@click.option("--repeat", type=click.IntRange(min=1), default=2, show_default=True, help="Start each server so often.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The file of tolerances.  [default: what the trial names, or tolerances.yaml beside SUITE]",
)
@RUNS
def command(suite: Path, select: tuple[str, ...], repeat: int, out: Path | None, runs: Path) -> None:
    """Ask the servers of SUITE every case, alone and in a crowd, and write how far the answers are apart: from what is
    expected, and where nothing is, from each other.

    The servers must be trusted: what is wrong with them becomes what is tolerated.
    """
    run, cells = ask_trusted(suite, "calibrate", select, runs, repeat)
    found: dict[Path, dict[str, Tolerance]] = {}
    for series in calibrate_cells(cells):
        seen = series.seen
        _print(series.name, seen)
        if seen.tolerance is None:
            fail(f"{series.name}: no answer has tokens with log-probabilities, so there is nothing to measure", 1)
        source = (
            f"{time.strftime('%Y-%m-%d', time.gmtime())}, run {run}: {seen.answers} answers, {seen.positions} tokens, "
            f"alone and in a crowd, servers started {repeat} times; largest {seen.largest:.3g}, rms {seen.rms:.3g}, "
            f"{seen.near_ties} near ties"
        )
        measured = msgspec.structs.replace(seen.tolerance, source=source)
        found.setdefault(out or series.path, {})[series.name] = measured
    for path, tolerances in found.items():
        text = path.read_text() if path.exists() else ""
        write_whole(path, with_tolerances(text, str(path), tolerances).encode())
        click.echo(f"wrote {path}; a trial uses it by `compare: {{tolerances: {os.path.relpath(path, suite.parent)}}}`")


def _print(series: str, seen: Calibrated) -> None:
    click.echo(f"\n{series}")
    click.echo(
        f"  {seen.answers} answers, {seen.positions} tokens: a log-probability moved by up to {seen.largest:.3g}, all "
        f"by {seen.rms:.3g} (root mean square); {seen.near_ties} went another way"
    )
    if seen.tolerance is not None:
        one = seen.tolerance
        click.echo(f"  tolerance: drift {one.drift:g}, rms {one.rms:g}, near_tie {one.near_tie:g}")
    if seen.floored:
        click.echo("  next to nothing moved: this is a tenth of what the precision has without calibration")
