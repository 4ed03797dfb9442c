"""`seatrial import`: makes a suite from a file of another tool."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.cli.common import fail

if TYPE_CHECKING:
    from seatrial.migrate import Imported

    Made = tuple[Imported, str, tuple[str, ...]]  # the suite, what it has, and warnings

TORCHPRIME, TESTER = "torchprime", "tgis-tester"


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
    from seatrial.record import write_whole
    from seatrial.suite import SuiteError

    out = out or file.with_name("seatrial.yaml")
    if out.exists() and out.samefile(file):
        fail(f"{out} is the file to import; --out names the suite that is made of it")
    if (out.exists() or out.is_symlink()) and not force:
        fail(f"already here: {out}; --force writes over it, --out writes another")
    if not out.parent.is_dir():
        fail(f"{out} cannot be written: there is no folder {out.parent}")
    try:
        make = _from_tester if _tool_of(file) == TESTER else _from_torchprime
        made, judged, warnings = make(file, out, command)
        _check_sound(made, file, out)
        write_whole(out, made.text.encode())
    except SuiteError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{out} cannot be written: {error.strerror}", 3)
    for warning in warnings:
        click.echo(warning, err=True)
    click.echo(f"wrote {out}: {judged}")
    click.echo("what the file does not say:")
    for line in made.unknown:
        click.echo(f"  {line}")
    click.echo(f"next: seatrial plan {out}")


def _from_torchprime(file: Path, out: Path, command: str | None) -> "Made":
    from seatrial.baseline import THEIRS, read_baselines
    from seatrial.migrate.torchprime import suite_from_torchprime

    baselines = read_baselines(file)
    if baselines.form != THEIRS:
        fail(f"{file} is a baseline of Seatrial: name it as `baseline:` of a trial; there is nothing to import")
    beside = os.path.relpath(file.resolve(), out.resolve().parent)
    made = suite_from_torchprime(baselines, file.stem, beside, command)
    return made, f"{_trials(made, 'training')}, judged by {beside}", baselines.warnings


def _from_tester(file: Path, out: Path, command: str | None) -> "Made":
    from seatrial.migrate.tgis_tester import read_tester_config, suite_from_tester

    tester = read_tester_config(file)
    made = suite_from_tester(tester, out.parent, command)
    return made, f"{_trials(made, 'serving')}, one for each configuration of each model", tester.ignored


def _trials(made: "Imported", kind: str) -> str:
    return f"{len(made.trials)} {kind} trial{'' if len(made.trials) == 1 else 's'}"


def _check_sound(made: "Imported", file: Path, out: Path) -> None:
    """Load the suite before it is written. Raises SuiteError, with the lines of the file that it was made from."""
    from seatrial.migrate import blamed
    from seatrial.plugins import models
    from seatrial.suite import SuiteError, from_data
    from seatrial.suite.yaml.source import Source

    source = Source(str(out), made.text)
    try:
        if source.problems:
            raise SuiteError(source.problems)
        from_data(source.data, out.absolute().parent, *models())
    except SuiteError as error:
        raise blamed(error, made, str(file)) from error


def _tool_of(file: Path) -> str:
    """Whose file it is. Says so when it is none that can be imported."""
    from seatrial.suite.yaml.source import read_source

    source = read_source(file)
    data = source.data
    keys = set(data) if isinstance(data, dict) else set()
    if "trials" in keys:
        fail(f"{file} is a suite already: seatrial plan {file}")
    if "tests" in keys and keys & {"cluster", "worker", "runner"}:
        return TESTER
    if not keys & {"benchmarks", "baselines"}:
        has = f"this has {', '.join(sorted(map(str, keys))[:8])} at its top" if keys else "this is no map"
        fail(
            f"{file} is of no tool that is known here: step_time_bounds.yaml (torchprime) has `benchmarks`, "
            f"config.yaml (tgis-tester) has `worker` and `tests`; {has}"
        )
    if "benchmarks" in keys and not data["benchmarks"]:
        mark = source.find(("benchmarks",), key=True)[0]
        fail(f"{file}:{mark.line}:{mark.column}: `benchmarks` is empty: there is nothing to make a suite from")
    return TORCHPRIME
