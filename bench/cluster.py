"""`python -m cluster up`: from the command to ready, after the build, programs not in memory; and back to nothing."""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _measure import ROOT, left_out, sized, table

sys.path.insert(0, str(ROOT))

from cluster import Cluster, Unavailable, up
from cluster.build import KUBERNETES, KWOK, PAUSE, built

TO_REACH_S = 15.0
FAKE_NODES = sized(1000, 5)
IDLE_S = sized(5.0, 0.5)
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def forget(path: Path) -> None:
    """As on a machine that has just started: the file must come from disk again."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def memory(cluster: Cluster) -> str:
    """Proportional: the pages that parts share are counted once in all."""
    found = {}
    for part, pid in cluster.parts().items():
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                found[part] = int(line.split()[1]) // 1024
    return ", ".join(f"{part} {size}" for part, size in sorted(found.items())) + f"; together {sum(found.values())} MB"


def idle_cores(cluster: Cluster) -> float:
    def used() -> int:
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in cluster.parts().values()]
        return sum(int(fields[11]) + int(fields[12]) for fields in stats)

    before = used()
    time.sleep(IDLE_S)
    return (used() - before) / CLOCK_TICKS / IDLE_S


def measure(name: str, place: Path, programs: list[Path], **options: object) -> list[tuple[str, str]]:
    for program in programs:
        forget(program)
    began = time.monotonic()
    made = up(name, place=place, **options)  # type: ignore[arg-type]
    took_s = time.monotonic() - began
    with made:
        again_s = timed(lambda: up(name, place=place))
        rows = [
            ("up, until all of it is ready", f"{took_s:5.1f} s   (to reach: <= {TO_REACH_S:.0f} s)"),
            ("up again, of one that is there", f"{again_s:5.1f} s"),
            ("memory, MB", memory(made)),
            ("cores used while idle", f"{idle_cores(made):5.2f}"),
        ]
        return [*rows, ("down, nothing left", f"{timed(made.down):5.1f} s")]


def main() -> None:
    try:
        programs = [built(program, print) for program in (KUBERNETES, PAUSE, KWOK)]
    except Unavailable as error:
        left_out(str(error))
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load before {load:.1f}: what else runs here is in the metrics")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        table("control plane alone", measure("plane", place, programs))
        title = f"with {FAKE_NODES} fake nodes of 8 GPUs"
        table(title, measure("fake", place, programs, fake_nodes=FAKE_NODES, gpus=8))
        try:
            table("with a real node", measure("real", place, programs, kubelet=True))
        except Unavailable as error:
            print(f"a real node was not measured: {error}")


if __name__ == "__main__":
    main()
