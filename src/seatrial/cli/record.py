"""`seatrial record`: records a trusted model server's answers as expected answers. `seatrial calibrate`: measures
their normal variation."""

import os
import time
from pathlib import Path

import click
import msgspec

from seatrial.api import plan, prepare
from seatrial.cli.common import RUNS, SELECT, fail, loaded, say
from seatrial.cli.common.watching import run_shown
from seatrial.engine import RunOptions
from seatrial.job import Unreadable
from seatrial.kinds.job import DRIVER
from seatrial.kinds.serving.answers.drift import Calibrated, Tolerance
from seatrial.kinds.serving.recording import (
    Recorded,
    RecordingState,
    TrustedCell,
    answers_in,
    calibrate_cells,
    check_one_each,
    new_texts,
    record_cell,
    suite_for,
)
from seatrial.kinds.serving.tolerance_file import with_tolerances
from seatrial.plugins import models
from seatrial.record import RunFolder, write_whole
from seatrial.record.history import open_history
from seatrial.suite import Cell
from seatrial.suite.yaml.problem import printable


@click.command()
@click.argument("suite", type=click.Path(path_type=Path))
@SELECT
@click.option("--diff", is_flag=True, help="Write nothing; show what would change, and exit 1 if anything would.")
@RUNS
def command(suite: Path, select: tuple[str, ...], diff: bool, runs: Path) -> None:
    """Send every case to the servers of SUITE and write their answers into the case files, as the expected answers of
    later runs. Use only trusted servers.

    Everything else in the files, including comments, is kept. Answers to sampled requests and answers that differ
    between two tries are not written.
    """
    changed = False
    for trusted in _ask_trusted(suite, "record", select, runs)[1]:
        recorded = record_cell(trusted)
        click.echo(f"\n{trusted.cell.id}")
        _print(recorded, diff)
        to_write = [one for one in recorded if one.state in (RecordingState.NEW, RecordingState.CHANGED)]
        changed = changed or bool(to_write)
        if to_write and not diff:
            for path, text in new_texts(trusted.cell, to_write).items():  # all of a cell's files or none
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, text.encode())
                click.echo(f"  wrote {path}")
    if diff:
        raise SystemExit(1 if changed else 0)


def _print(recorded: list[Recorded], diff: bool) -> None:
    for one in recorded:
        if one.state is RecordingState.SAME:
            continue
        click.echo(f"  {one.state:8} {printable(one.case.name)}")
        for line in one.lines if diff or one.state is RecordingState.REFUSED else ():
            click.echo(f"    {printable(line)}")
    counts = {state: sum(one.state is state for one in recorded) for state in RecordingState}
    click.echo("  " + ", ".join(f"{count} {state}" for state, count in counts.items() if count))


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
def calibrate_command(suite: Path, select: tuple[str, ...], repeat: int, out: Path | None, runs: Path) -> None:
    """Measure how much the answers of SUITE's servers vary, and write it to a tolerances file for later comparisons.

    Sends every case one at a time and concurrently. Compares the answers with the expected ones, or with each other if
    none are expected. Use only trusted servers: their errors become part of the tolerance.
    """
    run, cells = _ask_trusted(suite, "calibrate", select, runs, repeat)
    found: dict[Path, dict[str, Tolerance]] = {}
    for series in calibrate_cells(cells):
        seen = series.seen
        _print_calibrated(series.name, seen)
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


def _print_calibrated(series: str, seen: Calibrated) -> None:
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


def _ask_trusted(
    suite: Path, purpose: str, select: tuple[str, ...], runs: Path, repeat: int = 1
) -> tuple[str, list[TrustedCell]]:
    """Runs the selected serving cells; returns the run and their answers. Exits if any failed: its answers cannot be
    trusted."""
    trusted = suite_for(purpose, loaded(suite), models())
    made = plan(trusted, select=select, repeat=repeat if repeat > 1 else None, runs=runs)
    if purpose == "record":
        check_one_each(made.cells)
    prepared = prepare(made, runs, RunOptions(retries=0))
    # A separate history: recordings are not results of trials.
    code = run_shown(prepared, open_history(prepared.folder.path / "history.db"))
    if code:
        say(f"nothing was written: not every cell passed; see `seatrial report {prepared.folder.run}`")
        raise SystemExit(code)
    return prepared.folder.run, [_read(prepared.folder, cell) for cell in prepared.plan.cells]


def _read(folder: RunFolder, cell: Cell) -> TrustedCell:
    results = folder.read_results()
    done = next((one for one in results.cells if one.hash == cell.hash), None) if results else None
    if done is None or not done.attempts:
        fail(f"results not found: {cell.id} in {folder.path}", 3)
    try:
        observed = {DRIVER: folder.read_observation(cell.hash, done.attempts[-1].number, DRIVER)}
    except Unreadable as error:
        fail(str(error), 3)
    return TrustedCell(cell, answers_in(cell, observed))
