"""`seatrial record`: records a trusted model server's answers as expected answers. Shares code with `calibrate`."""

from pathlib import Path

import click

from seatrial.api import plan, prepare
from seatrial.cli.common import RUNS, SELECT, fail, loaded, say
from seatrial.cli.common.watching import run_shown
from seatrial.engine import RunOptions
from seatrial.job import Unreadable
from seatrial.kinds.job import DRIVER
from seatrial.kinds.serving.recording import (
    Recorded,
    RecordingState,
    TrustedCell,
    answers_in,
    check_one_each,
    new_texts,
    record_cell,
    suite_for,
)
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
    for trusted in ask_trusted(suite, "record", select, runs)[1]:
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


def ask_trusted(
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
