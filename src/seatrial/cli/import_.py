"""`seatrial import`: makes a suite from a file of another tool."""

import os
from pathlib import Path

import click

from seatrial.cli.options import fail


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--command", metavar="TEXT", help="How a job is started; {benchmark} and {name} are put in.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The suite to write.  [default: seatrial.yaml beside FILE]",
)
@click.option("--force", is_flag=True, help="Write over a suite that is there.")
def command(file: Path, command: str | None, out: Path | None, force: bool) -> None:
    """Make a suite from FILE, say what FILE does not tell, and leave FILE as it is.

    \b
    torchprime   step_time_bounds.yaml: a training trial for each benchmark, judged by the file's own bounds
    """
    from seatrial.engine import models
    from seatrial.record import write_whole
    from seatrial.suite import SuiteError, load
    from seatrial.suite.baseline import THEIRS, read_baselines
    from seatrial.suite.torchprime import suite_of

    out = out or file.with_name("seatrial.yaml")
    if (out.exists() or out.is_symlink()) and not force:
        fail(f"already here: {out}; --force writes over it, --out writes another")
    try:
        _check_known(file)
        baselines = read_baselines(file)
        if baselines.form != THEIRS:
            fail(f"{file} is a baseline of Seatrial: name it as `baseline:` of a trial; there is nothing to import")
        beside = os.path.relpath(file.resolve(), out.resolve().parent)
        made = suite_of(baselines, file.stem, beside, command)
        write_whole(out, made.text.encode())
        load(out, *models())
    except SuiteError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror}")
    for warning in baselines.warnings:
        click.echo(warning, err=True)
    click.echo(f"wrote {out}: {made.trials} training trials, judged by {beside}")
    click.echo("what the file does not say:")
    for line in made.unknown:
        click.echo(f"  {line}")
    click.echo(f"next: seatrial plan {out}")


def _check_known(file: Path) -> None:
    """Says what kind of file it is, when it is none that can be imported."""
    from seatrial.suite.source import read_source

    data = read_source(file).data
    keys = set(data) if isinstance(data, dict) else set()
    if "trials" in keys:
        fail(f"{file} is a suite already: seatrial plan {file}")
    if not keys & {"benchmarks", "baselines"}:
        has = f"this has {', '.join(sorted(map(str, keys))[:8])} at its top" if keys else "this is no map"
        fail(f"{file} is of no tool that is known here: step_time_bounds.yaml (torchprime) has `benchmarks`; {has}")
