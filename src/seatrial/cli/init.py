"""`seatrial init` and `seatrial schema`: a starter suite from the files in `starters`, and the schema for editors."""

import json
import sys
from importlib.resources import files
from pathlib import Path

import click

from seatrial import plugins
from seatrial.cli.common import completed, fail
from seatrial.suite import nearest, suite_schema

SUITE_FILE = "seatrial.yaml"
# By kind: each file to write, and its source in `starters`.
_STARTERS = {
    "runtime": {"first.ipynb": "first.ipynb", SUITE_FILE: "runtime.yaml"},
    "training": {"first_train.py": "first_train.py.txt", SUITE_FILE: "training.yaml"},
    "serving": {
        "first_server.py": "first_server.py.txt",
        "first_cases.yaml": "first_cases.yaml",
        SUITE_FILE: "serving.yaml",
    },
    "scale": {SUITE_FILE: "scale.yaml"},
}
_CONFORMANCE = {"conformance_cases.yaml": "conformance_cases.yaml", SUITE_FILE: "conformance.yaml"}


@click.command()
@click.argument("kind", default="runtime", shell_complete=completed(lambda _: _STARTERS))
@click.option("--conformance", is_flag=True, help="For serving: check the rules of OpenAI's API on a running server.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def command(kind: str, conformance: bool, force: bool) -> None:
    """Create seatrial.yaml, a suite that runs on this machine, with a trial of KIND: runtime (the default), training,
    serving or scale."""
    if kind not in _STARTERS:
        fail(f"no starter suite for kind {kind!r}{nearest(kind, _STARTERS)}")
    if conformance and kind != "serving":
        fail("--conformance is for serving: seatrial init serving --conformance")
    names = _CONFORMANCE if conformance else _STARTERS[kind]
    there = [name for name in names if Path(name).exists() or Path(name).is_symlink()]
    if there and not force:
        fail(f"already exists: {' and '.join(there)}; use --force to overwrite, or another folder")
    try:
        for name, source in names.items():
            text = files("seatrial.cli").joinpath("starters", source).read_text(encoding="utf-8")
            with open(name, "w" if force else "x", encoding="utf-8") as file:
                file.write(text.replace('"PYTHON"', '"{}.{}"'.format(*sys.version_info)))
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
    click.echo(f"wrote {', '.join(names)}\nnext: seatrial plan {SUITE_FILE}; seatrial run {SUITE_FILE}")


@click.command()
def schema_command() -> None:
    """Print the JSON Schema of suites, including installed kinds and targets.

    \b
    seatrial schema > suite.schema.json
    and at the top of a suite:   # yaml-language-server: $schema=suite.schema.json
    """
    click.echo(json.dumps(suite_schema(*plugins.models()), indent=2, ensure_ascii=False))
