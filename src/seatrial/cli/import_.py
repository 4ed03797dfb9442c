"""`seatrial import`: creates a suite from another tool's file."""

from pathlib import Path

import click

from seatrial.cli.common import fail
from seatrial.migrate import TesterOptions, default_out, import_suite
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
@click.option(
    "--map", "moved", multiple=True, metavar="FOLDER=DIR",
    help="Folder in tgis-tester's image and its copy here, such as /app=. for cases written as /app/tests/….",
)  # fmt: skip
@click.option("--image-tag", metavar="TAG", help="Tag of the server's image, as of tgis-tester.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def command(
    file: Path, command: str | None, out: Path | None, moved: tuple[str, ...], image_tag: str | None, force: bool
) -> None:
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
    folders = [one.rstrip("/").partition("=") for one in moved]
    if wrong := next((one for one, (folder, _, here) in zip(moved, folders, strict=True) if not (folder and here)), ""):
        fail(f"invalid --map {wrong!r}; use FOLDER=DIR, for example /app=.")
    mapped = tuple((folder.rstrip("/"), here) for folder, _, here in folders)
    tester = TesterOptions(mapped, image_tag) if mapped or image_tag else None
    made = import_suite(file, out, command, models(), tester)
    written = {out: made.text, **{out.with_name(name): text for name, text in made.files.items()}}
    for path in written:
        if path != out and path.exists() and not force:
            fail(f"{path} already exists; use --force to overwrite it")
    for path, text in written.items():
        try:
            write_whole(path, text.encode())
        except OSError as error:
            fail(f"cannot write {path}: {error.strerror}", 3)
    for warning in made.warnings:
        click.echo(warning, err=True)
    click.echo(f"wrote {out}: {made.about}")
    for name in made.files:
        click.echo(f"wrote {out.with_name(name)}")
    click.echo("not specified in the file:")
    for line in made.unknown:
        click.echo(f"  {line}")
    click.echo(f"next: seatrial plan {out}")
