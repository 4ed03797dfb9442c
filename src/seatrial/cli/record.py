"""`seatrial record`: writes what a trusted server answers as what is expected of others. `calibrate` asks it, too."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from seatrial.cli.common import RUNS, fail, loaded

if TYPE_CHECKING:
    from seatrial.kinds.serving.recording import CaseAnswers, Recorded
    from seatrial.suite import Cell, Suite


SERVING = "serving"


class TrustedCell(NamedTuple):
    cell: "Cell"
    answers: "list[CaseAnswers]"


class TrustedRun(NamedTuple):
    run: str
    cells: list[TrustedCell]


@click.command()
@click.argument("suite", type=click.Path(path_type=Path))
@click.option("--select", multiple=True, metavar="EXPR", help="Cells by id glob, axis=value or /hash: those to trust.")
@click.option("--diff", is_flag=True, help="Show what would change, token by token, and write nothing.")
@RUNS
def command(suite: Path, select: tuple[str, ...], diff: bool, runs: Path) -> None:
    """Ask the servers of SUITE every case, and write what they answer into the case files: responses, errors, what
    streams come to. Comments, order and everything else in the files stay as they are.

    What is left to chance, and what a server answers in two ways, is not written. With --diff it ends with 1 when
    something would change.
    """
    from seatrial.kinds.serving.recording import RecordingState, recording_by, to_record

    changed = False
    for trusted in ask_trusted(suite, "record", select, runs, one_each=True).cells:
        recorded = [to_record(one, recording_by(trusted.cell)) for one in trusted.answers]
        click.echo(f"\n{trusted.cell.id}")
        _print(recorded, diff)
        to_write = [one for one in recorded if one.state in (RecordingState.NEW, RecordingState.CHANGED)]
        changed = changed or bool(to_write)
        if to_write and not diff:
            _write(trusted, to_write)
    if diff:
        raise SystemExit(1 if changed else 0)


def _print(recorded: "list[Recorded]", diff: bool) -> None:
    from seatrial.kinds.serving.recording import RecordingState
    from seatrial.suite.yaml.problem import printable

    for one in recorded:
        if one.state is RecordingState.SAME:
            continue
        click.echo(f"  {one.state:8} {printable(one.case.name)}")
        for line in one.lines if diff or one.state is RecordingState.REFUSED else ():
            click.echo(f"    {printable(line)}")
    counts = {state: sum(one.state is state for one in recorded) for state in RecordingState}
    click.echo("  " + ", ".join(f"{count} {state}" for state, count in counts.items() if count))


def _write(trusted: TrustedCell, recorded: "list[Recorded]") -> None:
    """All files of a cell or none."""
    from seatrial.kinds.serving.recording import new_texts
    from seatrial.record import write_whole
    from seatrial.suite import SuiteError
    from seatrial.suite.yaml.document import CannotEdit

    try:
        texts = new_texts(trusted.cell, written_files(trusted.cell), recorded)
    except (SuiteError, CannotEdit) as error:
        fail(str(error))
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
        click.echo(f"  wrote {path}")


def ask_trusted(
    suite: Path, purpose: str, select: tuple[str, ...], runs: Path, repeat: int = 1, one_each: bool = False
) -> TrustedRun:
    """Run the serving cells that are meant, and read what came back. Ends the command where any of them failed: what a
    server answers that does not hold out is not to be trusted."""
    from seatrial.cli.common.watching import run_shown
    from seatrial.engine import RunOptions, create
    from seatrial.plan import Selection, expand
    from seatrial.record.history import open_history

    read = _for_purpose(loaded(suite), purpose)
    read = read.repeated(repeat) if repeat > 1 else read
    plan = expand(read, Selection(select))
    if one_each:
        _check_one_each(plan.cells)
    prepared = create(read, plan, runs, RunOptions(retries=0))
    # A history of its own: what was asked to be recorded says nothing of how trials went.
    code = run_shown(prepared, open_history(prepared.folder.path / "history.db"))
    if code:
        click.echo(
            f"seatrial: nothing was written: not every server answered everything ({prepared.folder.run})", err=True
        )
        raise SystemExit(code)
    return TrustedRun(prepared.folder.run, [_read(prepared.folder.path, cell) for cell in prepared.plan.cells])


def _for_purpose(suite: "Suite", purpose: str) -> "Suite":
    from seatrial.plugins import models
    from seatrial.suite import SuiteError, from_data

    trials = {
        name: {**suite.data["trials"][name], "purpose": purpose}
        for name, trial in suite.trials.items()
        if trial.kind == SERVING
    }
    if not trials:
        fail(f"{suite.path} has no trial of kind {SERVING}")
    try:
        return from_data({**suite.data, "trials": trials}, suite.directory, *models(), path=suite.path)
    except SuiteError as error:
        fail(str(error))


def _check_one_each(cells: "tuple[Cell, ...]") -> None:
    """Of cells that would write the same file, one is the reference, and only a person can say which."""
    by_file: dict[Path, list[str]] = {}
    for cell in cells:
        for path in written_files(cell):
            by_file.setdefault(path, []).append(cell.id)
    for path, ids in by_file.items():
        if len(ids) > 1:
            names = "\n".join(f"  --select '{name}'" for name in ids[:20])
            fail(f"{len(ids)} cells would write {path}; say which one is trusted:\n{names}")


def written_files(cell: "Cell") -> list[Path]:
    """Where what is expected of a cell is written: its file of answers, or its files of cases."""
    paths = [cell.spec.answers] if cell.spec.answers is not None else cell.spec.cases
    return [cell.directory / path for path in paths]


def _read(folder: Path, cell: "Cell") -> TrustedCell:
    from seatrial.kinds.job import DRIVER
    from seatrial.kinds.serving.recording import answers_in
    from seatrial.record import DamagedFile, RunFolder

    run = RunFolder(folder)
    results = run.read_results()
    done = next((one for one in results.cells if one.hash == cell.hash), None) if results else None
    if done is None or not done.attempts:
        fail(f"{folder} has no results of {cell.id}", 3)
    try:
        observed = {DRIVER: run.read_observation(cell.hash, done.attempts[-1].number, DRIVER)}
    except DamagedFile as error:
        fail(str(error), 3)
    return TrustedCell(cell, answers_in(cell, observed))
