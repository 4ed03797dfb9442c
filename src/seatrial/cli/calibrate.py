"""`seatrial calibrate`: measures the normal variation of a trusted model server's answers."""

import os
import time
from pathlib import Path

import click
import msgspec

from seatrial.cli.common import RUNS, SELECT, fail
from seatrial.cli.record import ask_trusted
from seatrial.kinds.serving.answers.drift import Calibrated, Tolerance
from seatrial.kinds.serving.recording import calibrate_cells
from seatrial.kinds.serving.tolerance_file import with_tolerances
from seatrial.record import write_whole


@click.command()
@click.argument("suite", type=click.Path(path_type=Path))
@SELECT
@click.option(
    "--repeat", type=click.IntRange(min=1), default=2, show_default=True,
    help="Start each server this many times and send all cases each time.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Tolerances file to write.  [default: the one the trial uses, or tolerances.yaml next to SUITE]",
)  # fmt: skip
@RUNS
def command(suite: Path, select: tuple[str, ...], repeat: int, out: Path | None, runs: Path) -> None:
    """Measure how much the answers of SUITE's servers vary, and write it to a tolerances file for later comparisons.

    Sends every case one at a time and concurrently. Compares the answers with the expected ones, or with each other if
    none are expected. Use only trusted servers: their errors become part of the tolerance.
    """
    run, cells = ask_trusted(suite, "calibrate", select, runs, repeat)
    found: dict[Path, dict[str, Tolerance]] = {}
    for series in calibrate_cells(cells):
        seen = series.seen
        _print(series.name, seen)
        if seen.tolerance is None:
            fail(f"{series.name}: nothing to measure: no answer has tokens with log-probabilities", 1)
        source = (
            f"{time.strftime('%Y-%m-%d', time.gmtime())}, run {run}: {seen.answers} answers, {seen.positions} tokens, "
            f"sequential and concurrent, servers started {repeat} times; largest {seen.largest:.3g}, "
            f"rms {seen.rms:.3g}, {seen.near_ties} near ties"
        )
        measured = msgspec.structs.replace(seen.tolerance, source=source)
        found.setdefault(out or series.path, {})[series.name] = measured
    for path, tolerances in found.items():
        text = path.read_text() if path.exists() else ""
        write_whole(path, with_tolerances(text, str(path), tolerances).encode())
        use = f"`compare: {{tolerances: {os.path.relpath(path, suite.parent)}}}`"
        click.echo(f"wrote {path}; use it in a trial with {use}")


def _print(series: str, seen: Calibrated) -> None:
    click.echo(f"\n{series}")
    click.echo(
        f"  {seen.answers} answers, {seen.positions} tokens: log-probabilities differ by up to {seen.largest:.3g} "
        f"(rms {seen.rms:.3g}); {seen.near_ties} near ties"
    )
    if seen.tolerance is not None:
        one = seen.tolerance
        click.echo(f"  tolerance: drift {one.drift:g}, rms {one.rms:g}, near_tie {one.near_tie:g}")
    if seen.floored:
        click.echo("  almost no variation: using a tenth of the precision's default tolerance")
