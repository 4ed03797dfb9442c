"""The dashboard over a history of 200,000 results: CPU time of the server for each page, the first time and later."""

import os
import random
import re
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import msgspec
from _measure import SEATRIAL, sized, table
from history import BENCHMARKS, RESULTS, RUNS, results

from seatrial.job import Finding, RunResults, Verdict
from seatrial.record.folder import RunFolder, summed_plan, write_whole
from seatrial.record.history import open_history
from seatrial.web.files import slug

ROUNDS = sized(5, 1)
TO_REACH_MS = 300
TOGETHER = 50  # runs that are added to the history at once
BAD = 20  # cells of each run that fail
MANY = sized(5_000, 50)  # cells of a large run


def with_failures(found: RunResults, noise: random.Random) -> RunResults:
    """A run in which some cells failed, as runs do."""
    cells = list(found.cells)
    for place in noise.sample(range(len(cells)), BAD):
        finding = Finding("run train", "run", Verdict.FAILED, message="exit code 1", evidence="CUDA out of memory")
        cells[place] = msgspec.structs.replace(
            cells[place], verdict=Verdict.FAILED, why="CUDA out of memory", findings=[finding]
        )
    counts = {"failed": BAD, "passed": len(cells) - BAD}
    return msgspec.structs.replace(found, cells=cells, verdict=Verdict.FAILED, counts=counts, suite_path="nightly.yaml")


def fill(runs: Path) -> list[RunResults]:
    """The history, and the folders of its runs; the last two of them whole. These."""
    history, noise, last = open_history(runs / "history.db"), random.Random(0), []
    for number in range(RUNS):
        found = with_failures(results(number, noise), noise)
        folder = RunFolder(runs / found.run)
        cells = [{"id": one.id, "hash": one.hash, "axes": one.axes, "trial": one.trial} for one in found.cells]
        kept = cells if number >= RUNS - 2 else cells[:1]
        write_whole(folder.plan, summed_plan({"seatrial": "0.2.0", "cells": kept, "holes": []}), sync=False)
        written = found if number >= RUNS - 2 else msgspec.structs.replace(found, cells=found.cells[:1])
        write_whole(folder.results, msgspec.json.encode(written), sync=False)
        last.append(found)
        if len(last) == TOGETHER or number == RUNS - 1:
            history.add(*last)
            last = last[-2:] if number == RUNS - 1 else []
    for found in last:
        log = RunFolder(runs / found.run).attempt(found.cells[0].hash, 1) / "log.txt"
        write_whole(log, b"".join(b"step %d loss 0.25\n" % step for step in range(20_000)), sync=False)
    return last


def fill_large(runs: Path) -> list[RunResults]:
    """Four runs of another suite, which has many cells."""
    noise, made = random.Random(1), []
    for number in range(4):
        found = with_failures(results(number, noise, benchmarks=MANY), noise)
        made.append(msgspec.structs.replace(found, run=f"large-{number}", suite="large"))
        folder = RunFolder(runs / made[-1].run)
        cells = [{"id": one.id, "hash": one.hash, "axes": one.axes, "trial": one.trial} for one in found.cells]
        write_whole(folder.plan, summed_plan({"seatrial": "0.2.0", "cells": cells, "holes": []}), sync=False)
        write_whole(folder.results, msgspec.json.encode(made[-1]), sync=False)
    open_history(runs / "history.db").add(*made)
    return made


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(pid: int, address: str, path: str) -> str:
    """Of a request the first time; then of many, for the clock of a process is coarse."""
    before = cpu_s(pid)
    size = len(urllib.request.urlopen(f"{address}{path}", timeout=60).read())
    first = cpu_s(pid) - before
    before, began = cpu_s(pid), time.monotonic()
    for _ in range(ROUNDS):
        urllib.request.urlopen(f"{address}{path}", timeout=60).read()
    later, wall = (cpu_s(pid) - before) / ROUNDS, (time.monotonic() - began) / ROUNDS
    missed = "" if max(first, later) * 1000 <= TO_REACH_MS else "   MISSED"
    cpu = f"{first * 1000:5.0f} ms first {later * 1000:5.0f} ms later"
    return f"{cpu}  {wall * 1000:5.0f} ms wall  {size >> 10:5} KiB{missed}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        before, after = fill(runs)
        large = fill_large(runs)
        argv = [SEATRIAL, "serve", "--port", "0", "--runs", runs]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                found = re.search(r"(http://\S+)/ ", server.stdout.readline())
                assert found
                cell = after.cells[7]
                paths = {
                    "first page": "/",
                    "suite, 200 cells over 40 runs": f"/s/{after.suite}",
                    "cell": f"/c/{after.suite}/{cell.hash}",
                    "metric": f"/f/{slug(cell.id)}/step_time",
                    "run, 200 cells": f"/r/{after.run}",
                    "cell of a run": f"/r/{after.run}/piece/cell/{cell.hash}",
                    "two runs": f"/d/{before.run}..{after.run}",
                    f"suite, {MANY:,} cells": "/s/large",
                    f"run, {MANY:,} cells": f"/r/{large[-1].run}",
                    f"two runs of {MANY:,} cells": f"/d/{large[-2].run}..{large[-1].run}",
                    "log, 20,000 lines": f"/log/{after.run}/{after.cells[0].hash}/1",
                }
                rows = [(name, measure(server.pid, found[1], path)) for name, path in paths.items()]
            finally:
                server.terminate()
        title = f"{RESULTS:,} results in {RUNS:,} runs of {BENCHMARKS} cells"
        table(f"{title}: CPU of the server for a page (to reach: <= {TO_REACH_MS} ms)", rows)


if __name__ == "__main__":
    main()
