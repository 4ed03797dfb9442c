"""The driver of scale trials: submissions a second of one process against a stub, how late they are, what each costs,
and how long 100,000 workloads of stamps take to become figures. Beside it, a `kubectl` process for each workload."""

import asyncio
import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from _measure import ROOT, table
from kubernetes_client import cpu_s, stub

sys.path.insert(0, str(ROOT))

RATE, SECONDS = 2_000.0, 5.0
WORKLOADS = 100_000


async def submissions(address: str, folder: Path) -> tuple[float, float, float, float]:
    """Rate, lateness at p50 and p99, CPU seconds of one submission."""
    from seatrial.drive.arrivals import offsets
    from seatrial.drive.driver import Driver, Given
    from seatrial.drive.scale.on_cluster import ClusterPlace
    from seatrial.drive.scale.plan import Plan
    from seatrial.drive.scale.stages import lateness, rate_of, share_of
    from seatrial.drive.scale.submit import Records, Submitter
    from seatrial.job.arrivals import Arrivals
    from seatrial.job.scale import Deletion, ScaleWork, Submission, WorkloadClass
    from seatrial.kubernetes import Access, Kubernetes
    from seatrial.target.kubernetes import kind
    from seatrial.target.kubernetes.belongings import Belongings

    count = int(RATE * SECONDS)
    arrivals = Arrivals("rate", RATE)
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": {"backoffLimit": 0}}
    work = ScaleWork("bench", "00000000", 1, "bench", (WorkloadClass("job", manifest),), count, arrivals)
    submitted, plan = Records(folder / "submitted.jsonl", Submission), Plan(work)
    async with Kubernetes(Access(address, namespace="default"), at_once=256) as client:
        mine = Belongings(client, kind.options(), work.run, work.cell, work.attempt)
        place = ClusterPlace(Driver(Given({}, str(folder)), 1), work, plan, client, {"default": mine}, kind.options())
        await place.check()  # and a connection is there
        before = cpu_s()
        submitter = Submitter(place, submitted, Records(folder / "deleted.jsonl", Deletion), asyncio.Event())
        await submitter.open_loop(plan.measured, offsets(arrivals, count), time.monotonic() + 0.2)
        used = cpu_s() - before
    late = lateness(submitted.all.values())
    sent = [one.sent_s for one in submitted.all.values() if one.sent_s is not None]
    return rate_of(sent) or 0.0, share_of(late, 0.5), share_of(late, 0.99), used / count


def analysis() -> tuple[float, float]:
    """CPU seconds and megabytes for all stages of many workloads."""
    from seatrial.drive.scale.stages import reached_stages, stage_figures
    from seatrial.job.scale import POD_CREATED, READY, SCHEDULED, STARTED, Stamp, Submission

    chance = random.Random(1)
    submissions = {number: Submission(number, number / 50, number / 50, number / 50) for number in range(WORKLOADS)}
    stages = (POD_CREATED, SCHEDULED, STARTED, READY)
    stamps = [
        Stamp(number, str(number), stage, number / 50 + (place + 1) * chance.lognormvariate(0, 1))
        for number in range(WORKLOADS)
        for place, stage in enumerate(stages)
    ]
    before = cpu_s()
    reached = reached_stages(submissions, stamps, {})
    for stage in stages:
        stage_figures(stage, submissions, reached, 1e6, 0.0)
    used = cpu_s() - before
    return used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, stub() as port:
        rate, p50, p99, each = asyncio.run(submissions(f"http://127.0.0.1:{port}", Path(folder)))
    used, peak = analysis()
    table(
        f"{int(RATE * SECONDS):,} submissions offered at {RATE:,.0f}/s to a stub on loopback, {os.cpu_count()} cores",
        [
            ("sent", f"{rate:7,.0f} a second   (to reach: 2,000)"),
            ("late", f"p50 {p50 * 1000:.2f} ms, p99 {p99 * 1000:.2f} ms"),
            ("CPU of one", f"{each * 1e6:7.0f} µs   (a `kubectl apply` process takes 160,000 to 210,000)"),
        ],
    )
    table(
        f"{WORKLOADS:,} workloads of four stages each, from stamps to quantiles with their intervals",
        [("seatrial", f"{used:.2f} s CPU, {peak:.0f} MB at most   (to reach: 5 s, 500 MB)")],
    )


if __name__ == "__main__":
    main()
