"""`seatrial init`: writes a suite that runs here as it is. The files are in `starters`."""

import sys
from importlib.resources import files
from pathlib import Path

import click

from seatrial.cli.common import fail

SUITE_FILE = "seatrial.yaml"
# By the kind of its trial: what is written, and the file of `starters` that it is made from.
_STARTERS = {
    "runtime": {"first.ipynb": "first.ipynb", SUITE_FILE: "runtime.yaml"},
    "training": {"first_train.py": "first_train.py.txt", SUITE_FILE: "training.yaml"},
}


@click.command()
@click.argument("kind", default="runtime")
@click.option("--force", is_flag=True, help="Write over files that are there.")
def command(kind: str, force: bool) -> None:
    """Write seatrial.yaml, a suite with a trial of KIND (runtime or training) that runs here as it is."""
    if kind not in _STARTERS:
        fail(f"there is no suite to start from for kind {kind!r}; there is one for: {', '.join(_STARTERS)}")
    names = _STARTERS[kind]
    there = [name for name in names if Path(name).exists() or Path(name).is_symlink()]
    if there and not force:
        fail(f"already here: {' and '.join(there)}; --force writes over what is there, or go to another folder")
    try:
        for name, source in names.items():
            text = files("seatrial.cli").joinpath("starters", source).read_text(encoding="utf-8")
            Path(name).write_text(text.replace('"PYTHON"', '"{}.{}"'.format(*sys.version_info)))
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
    click.echo(f"wrote {' and '.join(names)}\nnext: seatrial plan {SUITE_FILE}; seatrial run {SUITE_FILE}")
