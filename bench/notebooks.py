"""A small notebook by Seatrial's driver against plain nbclient, and eight at once against one by one.

    python bench/notebooks.py [REPEATS]

Both sides are processes of their own that read the notebook, run it in a new kernel and write the executed copy. They
are interleaved, so that a busy moment of the machine hits both; the metrics are medians and their ratio.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _measure import SEATRIAL, sized

from seatrial.targets.agent_file import agent_file

CELLS = [
    "import json, math, random",
    "values = [random.random() for _ in range(10_000)]\nprint(len(values))",
    "sum(math.sqrt(value) for value in values)",
    "print(json.dumps({'mean': sum(values) / len(values)}))",
    "table = {n: n * n for n in range(1000)}\nlen(table)",
]
PLAIN = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook).execute()
nbformat.write(notebook, sys.argv[2])
"""
AT_ONCE = sized(8, 2)
TIMES = sized(3, 1)
SUITE = """
name: eight
runtimes: {{here: {{interpreter: {interpreter}}}}}
trials:
  t: {{kind: runtime, facts: false, matrix: {{runtime: here, n: {numbers}}}, notebooks: [{{path: small.ipynb}}]}}
"""


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else sized(15, 1)
    with tempfile.TemporaryDirectory(prefix="bench") as name:
        folder = Path(name)
        agent = agent_file(folder / "agent")
        notebook = folder / "small.ipynb"
        notebook.write_text(json.dumps(_notebook()))
        sides: dict[str, Callable[[int], list[str]]] = {
            "nbclient": lambda n: [sys.executable, "-c", PLAIN, str(notebook), str(folder / f"plain{n}.ipynb")],
            "seatrial": lambda n: [sys.executable, str(agent), "notebook", str(_spec(folder, notebook, n))],
        }
        os.chdir(folder)
        _compare(sides, repeats, folder)
        _at_once(folder)


def _compare(sides: dict[str, Callable[[int], list[str]]], repeats: int, folder: Path) -> None:
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for number in range(repeats + 1):
        for name, argv in sides.items():
            metrics = _run(argv(number), folder)
            if number:  # the first of each warms the disk
                seen[name].append(metrics)
    medians = {name: [statistics.median(one) for one in zip(*rows, strict=True)] for name, rows in seen.items()}
    for name, (wall_s, cpu_s) in medians.items():
        print(f"{name:10} wall {wall_s:6.3f} s   cpu {cpu_s:6.3f} s   (median of {repeats})")
    ratios = [ours / plain for ours, plain in zip(medians["seatrial"], medians["nbclient"], strict=True)]
    print(f"{'ratio':10} wall {ratios[0]:6.3f}     cpu {ratios[1]:6.3f}     (at most 1.10)")


def _at_once(folder: Path) -> None:
    """Through the whole of Seatrial, from its start to its report: a suite of eight cells with the notebook in each."""
    (folder / "suite.yaml").write_text(SUITE.format(interpreter=sys.executable, numbers=list(range(AT_ONCE))))
    seen: dict[int, list[float]] = {parallel: [] for parallel in sized((1, 2, 4), (1, 2))}
    for _ in range(TIMES):
        for parallel, times in seen.items():
            argv = [str(SEATRIAL), "run", "suite.yaml", "--parallel", str(parallel)]
            times.append(_run(argv, folder)[0])
    medians = {parallel: statistics.median(times) for parallel, times in seen.items()}
    print(f"{AT_ONCE} notebooks, all of `seatrial run`, medians of {TIMES} (to reach: 1.7 times as fast on two cores)")
    for parallel, took_s in medians.items():
        faster = f"{medians[1] / took_s:.2f} times as fast" if parallel > 1 else ""
        print(f"  {parallel} at a time  {took_s:6.2f} s  {faster}")


def _run(argv: list[str], folder: Path) -> tuple[float, float]:
    started_s = time.monotonic()
    quiet = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, quiet, number) for number in (0, 1, 2)]
    pid = os.posix_spawn(
        argv[0],
        argv,
        {**os.environ, "TMPDIR": str(folder), "SEATRIAL_STATE": str(folder / "state")},
        file_actions=actions,
    )
    os.close(quiet)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{argv[:3]} ended with {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - started_s, usage.ru_utime + usage.ru_stime


def _spec(folder: Path, notebook: Path, number: int) -> Path:
    path = folder / f"spec{number}.json"
    path.write_text(json.dumps({"path": str(notebook), "passes": ["fresh"], "files": str(folder / f"kept{number}")}))
    return path


def _notebook() -> dict[str, object]:
    cells = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
        for n, source in enumerate(CELLS)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}


if __name__ == "__main__":
    main()
