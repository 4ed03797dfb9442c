"""`seatrial import`: makes a suite from a file of another tool."""

from pathlib import Path

import click

from seatrial.cli.common import fail
from seatrial.migrate import import_suite
from seatrial.plugins import models
from seatrial.record import write_whole


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--command",
    metavar="TEXT",
    help="How a job or server is started; {benchmark} and {name} of a benchmark are put in.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The suite to write.  [default: seatrial.yaml beside FILE]",
)
@click.option("--force", is_flag=True, help="Write over a suite that is there.")
def command(file: Path, command: str | None, out: Path | None, force: bool) -> None:
    """Make a suite from FILE, say what FILE leaves open, and leave FILE as it is.

    \b
    torchprime   step_time_bounds.yaml: a training trial for each benchmark, judged by the file's own bounds
    tgis-tester  config.yaml: a serving trial for each configuration of each model, with the same cases
    """
    out = out or file.with_name("seatrial.yaml")
    if out.exists() and out.samefile(file):
        fail(f"{out} is the file to import; --out names the suite that is made of it")
    if (out.exists() or out.is_symlink()) and not force:
        fail(f"already here: {out}; --force writes over it, --out writes another")
    if not out.parent.is_dir():
        fail(f"{out} cannot be written: there is no folder {out.parent}")
    try:
        made = import_suite(file, out, command, models())
        write_whole(out, made.text.encode())
    except OSError as error:
        fail(f"{out} cannot be written: {error.strerror}", 3)
    for warning in made.warnings:
        click.echo(warning, err=True)
    click.echo(f"wrote {out}: {made.about}")
    click.echo("what the file does not say:")
    for line in made.unknown:
        click.echo(f"  {line}")
    click.echo(f"next: seatrial plan {out}")
