"""A run of many cells that is killed in its middle and taken up: what each cell costs, at several sizes."""

import ctypes
import json
import os
import resource
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from _measure import PR_SET_CHILD_SUBREAPER, SEATRIAL, sized

POLL_S = sized(0.2, 0.01)


@dataclass(frozen=True)
class Load:
    cells: int
    cpu_s: float  # of both processes
    all_cpu_s: float  # and of all that they started
    peak_bytes: int  # of the larger one
    journal_bytes: int
    attach_s: float  # from the start of the second process to its first line in the journal
    wall_s: float


def load(suite: str, cells: int, env: Mapping[str, str]) -> Load:
    """Raises SystemExit when anything was lost, done twice or left."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "suite.yaml").write_text(suite.format(numbers=", ".join(map(str, range(cells))), cells=cells))
        own = {**os.environ, "HOME": folder, "SEATRIAL_STATE": str(home / "state"), **env}
        own.pop("PYTHONDONTWRITEBYTECODE", None)  # users' Pythons keep what they have compiled
        before = _children_cpu_s()
        began_s = time.monotonic()
        first = subprocess.Popen([SEATRIAL, "run", "suite.yaml"], cwd=home, env=own, stdout=subprocess.DEVNULL)
        _until_half(home, cells, first)
        first.send_signal(signal.SIGKILL)
        killed = os.wait4(first.pid, 0)[2]
        (journal,) = home.glob("runs/*/journal.jsonl")
        known = len(journal.read_bytes().splitlines())
        attach_wall_s = time.time()
        second = subprocess.Popen([SEATRIAL, "attach", "last"], cwd=home, env=own, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(second.pid, 0)
        wall_s = time.monotonic() - began_s
        if code := os.waitstatus_to_exitcode(status):
            raise SystemExit(f"the run failed: exit {code}")
        lines = [json.loads(line) for line in journal.read_bytes().splitlines()]
        _check(home, lines, cells)
        _wait_for_all()
        return Load(
            cells=cells,
            cpu_s=sum(one.ru_utime + one.ru_stime for one in (killed, used)),
            all_cpu_s=_children_cpu_s() - before,
            peak_bytes=max(killed.ru_maxrss, used.ru_maxrss) * 1024,
            journal_bytes=journal.stat().st_size,
            attach_s=lines[min(known, len(lines) - 1)]["wall_s"] - attach_wall_s,
            wall_s=wall_s,
        )


def print_loads(title: str, loads: Sequence[Load]) -> None:
    """Each metric by cell; in brackets how many times that of the size before, which is 1 when all is linear."""
    print(title)
    head = (
        "cells",
        "own CPU a cell",
        "all CPU a cell",
        "peak",
        "memory a cell",
        "journal a cell",
        "attach a cell",
        "wall",
    )
    rows = [head]
    for number, one in enumerate(loads):
        last = loads[number - 1] if number else None
        grown = (one.peak_bytes - last.peak_bytes) / (one.cells - last.cells) if last else None
        rows.append((
            f"{one.cells:,}",
            _by_cell(one.cpu_s * 1e3, one, last and last.cpu_s * 1e3, last, "ms"),
            _by_cell(one.all_cpu_s * 1e3, one, last and last.all_cpu_s * 1e3, last, "ms"),
            f"{one.peak_bytes / 1e6:.0f} MB",
            f"{grown / 1e3:.1f} kB" if grown is not None else "",
            _by_cell(one.journal_bytes, one, last and last.journal_bytes, last, "B"),
            _by_cell(one.attach_s * 1e3, one, last and last.attach_s * 1e3, last, "ms"),
            f"{one.wall_s:.0f} s",
        ))  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        print("  " + "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)))


def sizes(default: str) -> list[int]:
    """Of SEATRIAL_LOAD, for a quick look: `SEATRIAL_LOAD=100,200`."""
    return [int(size) for size in os.environ.get("SEATRIAL_LOAD", default).split(",")]


def _by_cell(value: float, one: Load, before: float | None, last: Load | None, unit: str) -> str:
    each = value / one.cells
    if before is None or last is None:
        return f"{each:.2f} {unit}"
    return f"{each:.2f} {unit} ({each / (before / last.cells):.2f})"


def _until_half(home: Path, cells: int, process: "subprocess.Popen[bytes]") -> None:
    judged = position = 0
    while judged < cells // 2:
        if process.poll() is not None:
            raise SystemExit(f"the run ended before it could be killed: exit {process.returncode}")
        time.sleep(POLL_S)
        for journal in home.glob("runs/*/journal.jsonl"):
            with journal.open("rb") as file:
                file.seek(position)
                data = file.read()
            position += len(data)
            judged += data.count(b'"event":"judged"')


def _check(home: Path, lines: Sequence[dict[str, object]], cells: int) -> None:
    (results,) = home.glob("runs/*/results.json")
    counts = json.loads(results.read_bytes())["counts"]
    planned = Counter(line["cell"] for line in lines if line["event"] == "planned")
    left = list(home.glob("state/jobs/*/*"))
    if counts != {"passed": cells} or len(planned) != cells or set(planned.values()) != {1} or left:
        raise SystemExit(f"not as it should be: {counts}, {len(planned)} cells were begun, {len(left)} jobs are left")


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _wait_for_all() -> None:
    """What outlived its parent became ours."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return
