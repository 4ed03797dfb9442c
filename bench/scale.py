"""The driver of scale trials: submissions a second of one process against a stub, how late they are, what each costs,
and how long 100,000 workloads of stamps take to become metrics. Beside it, a `kubectl` process for each workload."""

import asyncio
import contextlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from _measure import ROOT, sized, table
from kubernetes_client import cpu_s, stub

sys.path.insert(0, str(ROOT))

if TYPE_CHECKING:
    from seatrial.kubernetes import Access

RATE, SECONDS = sized((2_000.0, 5.0), (200.0, 0.5))
WORKLOADS = sized(100_000, 200)
EVENTS, EVENT_RATE = sized(100_000, 4_000), 20_000


async def submissions(
    access: "Access", folder: Path, burst: int = 0, follow: bool = False
) -> tuple[float, float, float, float]:
    """Rate, lateness at p50 and p99, CPU seconds of one submission; at a rate, or so many at once. With `follow` the
    workloads are watched, and all that measures meanwhile counts; until each of them was seen."""
    from seatrial.kinds.arrivals import Arrivals, offsets
    from seatrial.kinds.driver import Driver, Given
    from seatrial.kinds.scale.driver.cluster import ClusterWorkloads
    from seatrial.kinds.scale.driver.plan import SubmissionPlan
    from seatrial.kinds.scale.driver.stages import rate_of, share_of
    from seatrial.kinds.scale.driver.submit import Submitter
    from seatrial.kinds.scale.work import STAMPS, ScaleWork, WorkloadClass
    from seatrial.kubernetes import Kubernetes
    from seatrial.targets.kubernetes import kind
    from seatrial.targets.kubernetes.owned import ClusterObjects

    count = burst or int(RATE * SECONDS)
    arrivals = Arrivals("burst", burst=burst) if burst else Arrivals("rate", RATE)
    spec = {"schedulingGates": [{"name": "bench/never"}], "containers": [{"name": "main", "image": "none"}]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": spec}
    name = f"bench-{uuid.uuid4().hex[:6]}"  # those of an earlier call may still be there
    work = ScaleWork(name, "00000000", 1, name, (WorkloadClass("job", (manifest,)),), count, arrivals)
    plan = SubmissionPlan(work)
    async with Kubernetes(access, at_once=256) as client, contextlib.AsyncExitStack() as opened:
        mine = ClusterObjects(client, kind.options(), work.run, work.cell, work.attempt)
        if burst:  # a real server wants a real owner
            await opened.enter_async_context(mine)
        place = ClusterWorkloads(Driver(Given({}, str(folder)), 1), work, plan, mine)
        await place.prepare()  # and a connection is there
        if follow:
            await opened.enter_async_context(place.watching())
        watchers = _watchers() if follow else []
        before = cpu_s() + sum(map(_cpu_s, watchers))
        submitter = Submitter(place, folder, asyncio.Event())
        await submitter.open_loop(plan.measured, offsets(arrivals, count), time.monotonic() + 0.2)
        if follow:
            await _all_seen(folder / STAMPS, count)
        used = cpu_s() + sum(map(_cpu_s, watchers)) - before
    submitted = submitter.submitted.all.values()
    late = [one.late_s for one in submitted]
    done = [one.acknowledged_s for one in submitted if one.acknowledged_s is not None]
    return rate_of(done) or 0.0, share_of(late, 0.5), share_of(late, 0.99), used / count


async def _all_seen(stamps: Path, count: int) -> None:
    for _ in range(1_200):
        if stamps.read_bytes().count(b'"workload"') >= count:
            return
        await asyncio.sleep(0.1)
    raise SystemExit("the watch has not seen all workloads within two minutes")


WATCH = "seatrial.kinds.scale.driver.watch"


def _watchers() -> list[int]:
    """The processes of ours that watch."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if WATCH.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]


def watched(folder: Path) -> tuple[float, float, float, int, float]:
    """Seconds that the server took to send, seconds until all was written, CPU microseconds an event, events that were
    lost, and bytes of memory a workload, of the process that watches."""
    from seatrial.kinds.scale.driver.watch import PROGRAM, Watched, WatchWork
    from seatrial.kinds.scale.followed import followed_pods
    from seatrial.kubernetes import PODS

    server = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("_scale_watch.py"), str(EVENTS // 4), str(EVENT_RATE)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdout is not None
    kubeconfig, stamps, given = folder / "kubeconfig", folder / "stamps.jsonl", folder / "watch.json"
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.stdout.readline().strip()}"}}
    context = {"name": "x", "context": {"cluster": "c"}}
    kubeconfig.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "current-context": "x"}))
    watch = Watched(PODS, followed_pods(labelled=True))
    work = WatchWork(str(kubeconfig), None, ("default",), "a=b", str(stamps), "bench", (watch,))
    given.write_bytes(msgspec.json.encode(work))
    begun_s = time.monotonic()
    watcher = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(given)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert watcher.stdin is not None
    assert watcher.stdout is not None
    watcher.stdout.readline()
    first_cpu_s, first_bytes = _cpu_s(watcher.pid), _resident(watcher.pid)
    begun_s = time.monotonic()
    sent_s = float(server.stdout.readline())
    until_s, count = time.monotonic() + 60, 0
    while count < EVENTS and time.monotonic() < until_s:
        time.sleep(0.05)
        count = stamps.read_bytes().count(b'"workload"')
    took_s, used_s = time.monotonic() - begun_s, _cpu_s(watcher.pid) - first_cpu_s
    each = (_resident(watcher.pid) - first_bytes) / (EVENTS / 4)
    watcher.stdin.close()
    watcher.wait()
    server.kill()
    server.wait()
    return sent_s, took_s, used_s / EVENTS * 1e6, EVENTS - count, each


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def analysis(folder: Path) -> None:
    """In a process of its own: prints CPU seconds and megabytes for all stages of many workloads, from their file."""
    from seatrial.kinds.scale.driver.durations import stage_metrics, timeline_of
    from seatrial.kinds.scale.driver.stages import reached_stages, read_stamps
    from seatrial.kinds.scale.followed import POD_CREATED, READY, SCHEDULED, STARTED
    from seatrial.kinds.scale.work import Stamp, Submission

    chance = random.Random(1)
    submissions = {number: Submission(number, number / 50, number / 50, number / 50) for number in range(WORKLOADS)}
    stages = (POD_CREATED, SCHEDULED, STARTED, READY)
    with open(folder / "many.jsonl", "wb") as file:
        for number in range(WORKLOADS):
            for place, stage in enumerate(stages):
                at_s = number / 50 + (place + 1) * chance.lognormvariate(0, 1)
                file.write(msgspec.json.encode(Stamp(number, f"{number:036d}", stage, at_s)) + b"\n")
    before = cpu_s()
    reached = reached_stages(submissions, read_stamps(folder / "many.jsonl"), {})
    timeline = timeline_of(submissions, reached, 1e6)
    for stage in stages:
        stage_metrics(stage, timeline)
    print(cpu_s() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        from seatrial.kubernetes import Access

        with stub() as port:
            access = Access(f"http://127.0.0.1:{port}", namespace="default")
            rate, p50, p99, each = asyncio.run(submissions(access, folder))
        sent_s, took_s, event_us, lost, workload_bytes = watched(folder)
        analysed = subprocess.run([sys.executable, __file__, str(folder)], check=True, capture_output=True, text=True)
        used, peak = map(float, analysed.stdout.split())
    load = os.getloadavg()[0]
    table(
        f"{int(RATE * SECONDS):,} submissions offered at {RATE:,.0f}/s to a stub on loopback, {os.cpu_count()} cores, "
        f"load {load:.0f}",
        [
            ("acknowledged", f"{rate:7,.0f} a second   (to reach: 2,000)"),
            ("late", f"p50 {p50 * 1000:.2f} ms, p99 {p99 * 1000:.2f} ms"),
            ("CPU of one", f"{each * 1e6:7.0f} µs   (a `kubectl apply` process takes 160,000 to 210,000)"),
            ("so a free core", f"{1 / each:7,.0f} a second"),
        ],
    )
    table(
        f"{EVENTS:,} events of a watch, 2 kB each, sent at {EVENTS / sent_s:,.0f}/s (to reach: 20,000 without loss)",
        [
            ("written", f"{EVENTS / took_s:7,.0f} a second, {lost} lost"),
            ("CPU of one", f"{event_us:7.1f} µs, so a free core {1e6 / event_us:,.0f} a second"),
            ("memory", f"{workload_bytes:7.0f} bytes a workload   (to reach: 2,048)"),
        ],
    )
    table(
        f"{WORKLOADS:,} workloads of four stages each, from the file of stamps to quantiles with their intervals",
        [("seatrial", f"{used:.2f} s CPU, {peak:.0f} MB at most   (to reach: 5 s, 500 MB)")],
    )


if __name__ == "__main__":
    analysis(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
