"""`seatrial record`: writes what a trusted server answers as what is expected of others."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.cli.options import RUNS, fail

if TYPE_CHECKING:
    from seatrial.cli.trusted import TrustedCell
    from seatrial.trial.serving.recording import Recorded


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
    from seatrial.cli.trusted import ask_trusted
    from seatrial.trial.serving.recording import RecordingState, recording_by, to_record

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
    from seatrial.suite.yaml.problem import printable
    from seatrial.trial.serving.recording import RecordingState

    for one in recorded:
        if one.state is RecordingState.SAME:
            continue
        click.echo(f"  {one.state:8} {printable(one.case.name)}")
        for line in one.lines if diff or one.state is RecordingState.REFUSED else ():
            click.echo(f"    {printable(line)}")
    counts = {state: sum(one.state is state for one in recorded) for state in RecordingState}
    click.echo("  " + ", ".join(f"{count} {state}" for state, count in counts.items() if count))


def _write(trusted: "TrustedCell", recorded: "list[Recorded]") -> None:
    """All files of a cell or none."""
    from seatrial.cli.trusted import written_files
    from seatrial.record import write_whole
    from seatrial.suite import SuiteError
    from seatrial.suite.yaml.document import CannotEdit
    from seatrial.trial.serving.recording import new_texts

    try:
        texts = new_texts(trusted.cell, written_files(trusted.cell), recorded)
    except (SuiteError, CannotEdit) as error:
        fail(str(error))
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
        click.echo(f"  wrote {path}")
