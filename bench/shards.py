"""What changes when several drivers make the workloads of one: simulated arrivals at a server, and the merging of the
stamps of up to a million workloads. `python bench/shards.py [WORKLOADS]`, by default 100,000."""

import random
import resource
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np
from _measure import sized
from numpy.typing import NDArray

from seatrial.kinds.arrivals import Arrivals, offsets
from seatrial.kinds.scale.driver.merge import merge_shards, read_shard
from seatrial.kinds.scale.followed import FINISHED, POD_CREATED, READY, SCHEDULED, STARTED
from seatrial.kinds.scale.work import STAMPS, SUBMITTED, ScaleWork, Stamp, Submission, WorkloadClass

RATE, SERVICE_S = 400.0, 0.002  # offered a second; what one create takes of a server with one core
SIMULATED = sized(200_000, 2_000)
SEEN = (POD_CREATED, SCHEDULED, STARTED, READY, FINISHED)


def main(workloads: int) -> None:
    print(f"A server that takes {SERVICE_S * 1000:g} ms for each, offered {RATE:g} a second: waits in ms, p50 and p99")
    print(f"{'arrivals':10} {'drivers':>7} {'starts apart':>14} {'p50':>8} {'p99':>8}")
    for shape in ("rate", "poisson"):
        for drivers, apart_s in ((1, 0.0), (4, 0.0), (4, 0.0004), (4, 0.5), (16, 0.5)):
            _print_waits(shape, drivers, apart_s, _arrivals(shape, drivers, apart_s))
    alone = np.array(offsets(Arrivals("poisson", rate=RATE / 4), SIMULATED // 4))
    _print_waits("one seed", 4, 0.0, np.repeat(alone, 4))
    print(f"\nMerging the stamps of {workloads:,} workloads, five stages each")
    for drivers in (16, 4, 1):  # the most memory that this process ever had is what is known of it
        _merging(workloads, drivers)


def _print_waits(shape: str, drivers: int, apart_s: float, arrivals: NDArray[np.float64]) -> None:
    p50, p99 = np.quantile(_waits(arrivals), (0.5, 0.99)) * 1000
    print(f"{shape:10} {drivers:>7} {apart_s * 1000:>11.1f} ms {p50:>8.2f} {p99:>8.2f}")


def _arrivals(shape: str, drivers: int, apart_s: float) -> NDArray[np.float64]:
    """Each driver has its share of the rate. Even arrivals are meant to interleave; starts are off by chance."""
    chance = random.Random(drivers)
    each = SIMULATED // drivers
    found = []
    for number in range(drivers):
        start_s = number / RATE if shape == "rate" else 0.0
        begun_s = start_s + chance.uniform(0, apart_s)
        found.append(np.array(offsets(Arrivals(shape, rate=RATE / drivers), each, seed=number)) + begun_s)
    return np.sort(np.concatenate(found))


def _waits(arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
    """In the queue of a server that takes one after the other."""
    free_s, waits = 0.0, np.empty(len(arrivals))
    for place, at_s in enumerate(arrivals):
        begun_s = max(at_s, free_s)
        waits[place] = begun_s - at_s
        free_s = begun_s + SERVICE_S
    return waits


def _merging(workloads: int, drivers: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = ScaleWork(
            "run", "cell", 1, "p", (WorkloadClass("job", ()),), workloads // drivers, Arrivals("rate", rate=100.0)
        )
        size = sum(_write(Path(folder) / str(number), work, number) for number in range(drivers))
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        merged = merge_shards(read_shard(Path(folder) / str(number), work) for number in range(drivers))
        took_s, cpu_s = time.perf_counter() - begun_s, time.process_time() - cpu_s
    (scheduled,) = [one for one in merged.stages if one.stage == SCHEDULED]
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert scheduled.count == workloads // drivers * drivers
    p99 = scheduled.quantiles[-1].value
    took = f"{took_s:.1f} s, {cpu_s:.1f} s of it CPU time"
    print(f"{drivers:>3} drivers: {size / 1e6:,.0f} MB of files, {took}, {most:,.0f} MB of memory at most")
    print(f"             scheduled p99 {p99:.6f} s")


def _write(folder: Path, work: ScaleWork, which: int) -> int:
    folder.mkdir()
    with open(folder / SUBMITTED, "wb") as submitted, open(folder / STAMPS, "wb") as stamps:
        chance = random.Random(which)
        for number in range(work.count):
            at_s = 1e6 * which + number / 100
            submitted.write(msgspec.json.encode(Submission(number, at_s, at_s, at_s + 0.005, 1)) + b"\n")
            for stage in SEEN:
                at_s += chance.expovariate(1.0)
                pod = f"00000000-0000-4000-8000-{number:012}"
                stamps.write(msgspec.json.encode(Stamp(number, pod, stage, at_s)) + b"\n")
        return submitted.tell() + stamps.tell()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else sized(100_000, 160))
