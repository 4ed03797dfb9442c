"""A scale trial on a real API server with fake nodes: how much of the offered rate is sent, how far the watch is from
the server's own audit log, and what a submission costs; beside it, creates by a Go program with client-go on the same
server in the same run. kube-burner is Go with client-go, too, and cannot be had from every module proxy."""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from _measure import ROOT, SEATRIAL, cpu_of_one, table
from kubernetes_client import REAL_CREATES, go_creates

sys.path.insert(0, str(ROOT))

from cluster import Unavailable, up

FAKE_NODES, SECONDS = 50, 15
RATES = (20, 40, 80)
SUITE = """
name: bench
targets: {{cluster: {{kind: kubernetes, kubeconfig: {kubeconfig}, namespace: default}}}}
trials:
  trial:
    kind: scale
    target: cluster
    retries: 0
    workload: {{kind: pod, cpu: 1m, memory: 1Mi}}
    count: {count}
    arrivals: {{rate: {rate}/s}}
    until: scheduled
    audit_log: {audit_log}
    bounds: {{unfinished: 0}}
"""


def trial(kubeconfig: Path, audit_log: Path, rate: int) -> list[tuple[str, str]]:
    count = rate * SECONDS
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        suite = SUITE.format(kubeconfig=kubeconfig, audit_log=audit_log, count=count, rate=rate)
        (folder / "suite.yaml").write_text(suite)
        environment = {**os.environ, "SEATRIAL_STATE": str(folder / "state")}
        _, _, code = cpu_of_one([SEATRIAL, "run", "suite.yaml"], cwd=folder, env=environment)
        (found,) = folder.glob("runs/*/results.json")
        cell = json.loads(found.read_text())["cells"][0]
    findings = {one["check"]: one["message"] for one in cell["findings"]}
    metrics = cell["metrics"]
    sent = metrics["rate"]["value"]
    scheduled = {name: 1000 * metrics["scheduled"][name]["value"] for name in ("p50", "p99")}
    return [
        (f"{rate}/s offered", f"{sent:.1f}/s sent, {sent / rate:.1%}; exit code {code}"),
        ("  scheduled", f"p50 {scheduled['p50']:.1f} ms, p99 {scheduled['p99']:.1f} ms, by the audit log"),
        ("  measurement", findings["measurement"]),
        ("  audit log", findings["audit log"]),
        ("  clock", findings["clock"]),
    ]


def main() -> None:
    try:
        cluster = up("bench-scale", fake_nodes=FAKE_NODES, gpus=8)
    except Unavailable as error:
        raise SystemExit(f"no cluster here: {error.what}") from None
    with cluster:
        rows = [row for rate in RATES for row in trial(cluster.kubeconfig, cluster.audit_log, rate)]
        load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
        wanted = "to reach: 95 %, and the watch off by 1 ms at p50, 10 ms at p99"
        table(f"pods for {SECONDS} s on {FAKE_NODES} fake nodes, {load} ({wanted})", rows)
        from scale import submissions
        from seatrial.kubernetes import load_access

        with tempfile.TemporaryDirectory() as place:
            access = load_access(cluster.kubeconfig)
            rate, _, _, ours = asyncio.run(submissions(access, Path(place), REAL_CREATES))
        rows = [("Seatrial's submitter", f"{ours * 1e6:5.0f} µs of CPU each, with its records; {rate:,.0f}/s")]
        for name, form in (("protobuf", ""), ("JSON", "application/json")) if shutil.which("go") else ():
            go = go_creates(str(cluster.kubeconfig), "default", len(rows), form)
            rows.append((f"client-go, {name}", f"{go * 1e6:5.0f} µs of CPU each, {go / ours:.2f} times"))
        table(f"{REAL_CREATES:,} creates on the same API server, all at once", rows)


if __name__ == "__main__":
    main()
