"""`seatrial baseline curve`: saves the losses of a run, for `loss: {curve: FILE}` of its trial."""

from pathlib import Path

import click

from seatrial.cli.options import RUN, RUNS, cells_of, fail, find


@click.command("curve", short_help="Save the losses of a run as the curve that others are compared with.")
@RUN
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--cell", metavar="CELL", help="Whose losses: an id, a glob, axis=value or /hash.")
@click.option("--host", type=click.IntRange(min=0), help="Of several hosts, whose; default: the first that told any.")
@click.option("--force", is_flag=True, help="Also over a file that is there, and from a cell that did not pass.")
@RUNS
def command(run: str, file: Path, cell: str | None, host: int | None, force: bool, runs: Path) -> None:
    """Save the losses that the log of RUN told (an id, its beginning, a path, or `last`) in FILE, by their steps.

    `loss: {curve: FILE}` of a training trial compares later runs with it.
    """
    from seatrial.kinds.training.curve import CurveError, curve_of, curve_text
    from seatrial.record import DamagedFile, write_whole

    folder = find(runs, run)
    results = folder.read_results()
    if results is None:
        fail(f"{folder.run} is not finished; `seatrial attach {folder.run}` finishes it")
    wanted = {one.hash for one in cells_of(folder, cell)}
    tried = [one for one in results.cells if one.hash in wanted and one.attempts]
    if len(tried) != 1:
        names = "".join(f"\n  --cell '{one.id}'" for one in tried[:20])
        fail(f"{len(tried)} cells of {folder.run} are meant; say which one:{names}" if tried else "no such cell ran")
    (found,) = tried
    if not found.verdict.good and not force:
        fail(f"{found.id} is {found.verdict}: {found.why}; --force saves its losses all the same", 1)
    if file.exists() and not force:
        fail(f"{file} is there already; --force replaces it", 1)
    last = found.attempts[-1]
    try:
        curve = curve_of(folder.read_observation(found.hash, last.number, next(iter(last.parts), "job")), host)
        write_whole(file, curve_text(curve).encode())
    except (CurveError, DamagedFile) as error:
        fail(f"{found.id}: {error}", 1)
    except OSError as error:
        fail(f"{file} cannot be written: {error.strerror}")
    click.echo(f"saved {len(curve)} losses of {found.id}, steps {min(curve)} to {max(curve)}, in {file}")
