"""`seatrial init`: creates a starter suite that runs on this machine, from the files in `starters`."""

import sys
from importlib.resources import files
from pathlib import Path

import click

from seatrial.cli.common import fail

SUITE_FILE = "seatrial.yaml"
# By kind: each file to write, and its source in `starters`.
_STARTERS = {
    "runtime": {"first.ipynb": "first.ipynb", SUITE_FILE: "runtime.yaml"},
    "training": {"first_train.py": "first_train.py.txt", SUITE_FILE: "training.yaml"},
}


@click.command()
@click.argument("kind", default="runtime")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def command(kind: str, force: bool) -> None:
    """Create seatrial.yaml, a suite for this machine with a trial of KIND: runtime (the default) or training."""
    if kind not in _STARTERS:
        fail(f"no starter suite for kind {kind!r}; known: {', '.join(_STARTERS)}")
    names = _STARTERS[kind]
    there = [name for name in names if Path(name).exists() or Path(name).is_symlink()]
    if there and not force:
        fail(f"already exists: {' and '.join(there)}; use --force to overwrite, or another folder")
    try:
        for name, source in names.items():
            text = files("seatrial.cli").joinpath("starters", source).read_text(encoding="utf-8")
            Path(name).write_text(text.replace('"PYTHON"', '"{}.{}"'.format(*sys.version_info)))
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
    click.echo(f"wrote {' and '.join(names)}\nnext: seatrial plan {SUITE_FILE}; seatrial run {SUITE_FILE}")
