"""`seatrial import`: creates a suite from another tool's file."""

from pathlib import Path

import click

from seatrial.cli.common import fail
from seatrial.migrate import default_out, import_suite
from seatrial.plugins import models
from seatrial.record import write_whole


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--command", metavar="TEXT",
    help="Command that starts a job or server; {benchmark}, {name}, {model} and {arguments} of a job are replaced.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Suite to write.  [default: seatrial.yaml next to FILE or in its checkout]",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite an existing suite.")
def command(file: Path, command: str | None, out: Path | None, force: bool) -> None:
    """Create a suite from FILE and list what FILE does not specify. FILE is not changed.

    \b
    torchprime   e2e_test.yml: a training trial for each job, with its arguments, checks and bounds
                 step_time_bounds.yaml: a training trial for each benchmark, checked against the file's bounds
    tgis-tester  config.yaml: a serving trial for each configuration of each model, with the same cases
    """
    out = out or default_out(file)
    if out.exists() and out.samefile(file):
        fail(f"{out} is the file to import; use --out to write the suite to another file")
    if (out.exists() or out.is_symlink()) and not force:
        fail(f"{out} already exists; use --force to overwrite it, or --out to write another file")
    if not out.parent.is_dir():
        fail(f"cannot write {out}: folder not found: {out.parent}")
    try:
        made = import_suite(file, out, command, models())
        write_whole(out, made.text.encode())
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror}", 3)
    for warning in made.warnings:
        click.echo(warning, err=True)
    click.echo(f"wrote {out}: {made.about}")
    click.echo("not specified in the file:")
    for line in made.unknown:
        click.echo(f"  {line}")
    click.echo(f"next: seatrial plan {out}")
