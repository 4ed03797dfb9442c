"""`seatrial init`: writes a suite that runs here as it is."""

import json
import sys
from pathlib import Path

import click

from seatrial.cli.options import fail

_SUITE = """\
# A first suite. `seatrial plan {file}` shows what it would run, `seatrial run {file}` runs it.
name: first

machines:                       # shapes to run on; `target: here`, this machine, is the default
  small: {{cpu: 1, memory: 1Gi}}  # limits that hold: one core, one gibibyte

runtimes:                       # environments to test
  host:  {{interpreter: python3}} # a Python that is there already
  built:                        # one that Seatrial builds with uv, and caches
    python: "{python}"
    packages: [ipykernel]
    notebooks:                  # run in this runtime's own kernel, only here
      - {{path: {notebook}, passes: [fresh, rerun, restart], timeout: 5m, parameters: {{epochs: 2}}}}

trials:
  works:
    kind: runtime
    matrix: {{runtime: all, machine: all}}      # every combination is a cell, or a hole with its reason
    estimate: 30s                             # until the history knows better
    timeout: {{run: 10m}}
    commands: [git, sh]                       # must be there
    imports: [json, sqlite3]                  # must import
    run:                                      # must exit with 0
      - python3 -c "import sys; print(sys.version)"
      - echo "runtime ${{runtime}} on ${{machine}}"
"""

_CELLS: list[tuple[str, list[str], list[str]]] = [
    ("markdown", [], ["# A first notebook\n", "Seatrial runs it in each of its passes."]),
    ("code", ["parameters"], ["epochs = 1"]),
    ("code", [], ["total = sum(range(epochs))\n", "print(f'{epochs} epochs, total {total}')\n", "assert total >= 0"]),
]


@click.command()
@click.argument("kind", default="runtime")
@click.option("--force", is_flag=True, help="Write over files that are there.")
def command(kind: str, force: bool) -> None:
    """Write seatrial.yaml, a suite with a trial of KIND (default: runtime) that runs here as it is."""
    if kind != "runtime":
        fail(f"there is no suite to start from for kind {kind!r}; there is one for: runtime")
    suite, notebook = Path("seatrial.yaml"), Path("first.ipynb")
    there = [str(path) for path in (suite, notebook) if path.exists() or path.is_symlink()]
    if there and not force:
        fail(f"already here: {' and '.join(there)}; --force writes over what is there, or go to another folder")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        notebook.write_text(json.dumps(_notebook(), indent=1) + "\n")
        suite.write_text(_SUITE.format(file=suite, notebook=notebook, python=python))
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
    click.echo(f"wrote {suite} and {notebook}\nnext: seatrial plan {suite}; seatrial run {suite}")


def _notebook() -> dict[str, object]:
    cells: list[dict[str, object]] = []
    for number, (kind, tags, source) in enumerate(_CELLS):
        cell: dict[str, object] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source}
        if tags:
            cell["metadata"] = {"tags": tags}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
