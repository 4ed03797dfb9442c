"""`seatrial init`: writes a suite that runs here as it is."""

import json
import sys
from pathlib import Path

import click

from seatrial.cli.common import fail

SUITE_FILE = "seatrial.yaml"
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
    matrix: {{runtime: all, machine: all}}      # every combination is run, or excluded with its reason
    estimate: 30s                             # until the history knows better
    timeout: {{run: 10m}}
    commands: [git, sh]                       # must be there
    imports: [json, sqlite3]                  # must import
    run:                                      # must exit with 0
      - python3 -c "import sys; print(sys.version)"
      - echo "runtime ${{runtime}} on ${{machine}}"
"""

_TRAINING = """\
# A first suite of a training job. `seatrial plan {file}` shows what it would run, `seatrial run {file}` runs it.
name: training

machines:
  here: {{parallel: 1}}           # one at a time: their times are compared

runtimes:
  host: {{interpreter: python3, workspace: {{path: first_train.py}}}}

trials:
  small:
    kind: training
    matrix: {{runtime: host, machine: here}}
    command: python3 first_train.py           # put your own here
    timeout: {{run: 10m}}
    log: {{must: Finished training run, never: Traceback}}    # a line that never should be ends the job at once
    loss: {{target: 0.05, tolerance: 0.05}}                   # the last one; nan and inf end the job at once
    steps: {{count: ">=30"}}
    metrics:
      step_time: {{file: train_metrics.json, key: step_execution_time, unit: s, better: lower}}
    baseline: bounds.yaml                     # `seatrial baseline update {file} --reason ...`, after some runs
    confirm: 1                                # slower is said when a second run agrees
"""

_TRAIN = """\
\"\"\"Stands for a training job: it reports its steps in the log, and writes a file of metrics.\"\"\"

import json
import random
import statistics
import time

weight, times = 0.0, []
for step in range(30):
    began = time.perf_counter()
    for _ in range(20000):
        x = random.random()
        weight += 0.001 * (3.0 * x - weight * x) * x
    times.append(time.perf_counter() - began)
    print(f"step: {step} loss: {(3.0 - weight) ** 2:.4f} step_time: {times[-1]:.6f}s", flush=True)
with open("train_metrics.json", "w") as file:
    json.dump({"step_execution_time": statistics.median(times[2:]), "num_steps": len(times)}, file)
print("Finished training run")
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
    """Write seatrial.yaml, a suite with a trial of KIND (runtime or training) that runs here as it is."""
    if kind not in _STARTERS:
        fail(f"there is no suite to start from for kind {kind!r}; there is one for: {', '.join(_STARTERS)}")
    files = _STARTERS[kind]()
    there = [name for name in files if Path(name).exists() or Path(name).is_symlink()]
    if there and not force:
        fail(f"already here: {' and '.join(there)}; --force writes over what is there, or go to another folder")
    try:
        for name, text in files.items():
            Path(name).write_text(text)
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
    click.echo(f"wrote {' and '.join(files)}\nnext: seatrial plan {SUITE_FILE}; seatrial run {SUITE_FILE}")


def _runtime() -> dict[str, str]:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    notebook = json.dumps(_notebook(), indent=1) + "\n"
    return {"first.ipynb": notebook, SUITE_FILE: _SUITE.format(file=SUITE_FILE, notebook="first.ipynb", python=python)}


def _training() -> dict[str, str]:
    return {"first_train.py": _TRAIN, SUITE_FILE: _TRAINING.format(file=SUITE_FILE)}


_STARTERS = {"runtime": _runtime, "training": _training}


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
