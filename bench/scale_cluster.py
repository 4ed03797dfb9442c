"""A scale trial on a real API server with fake nodes: how much of the offered rate is sent, how far the watch is from
the server's own audit log, and what a submission costs. Beside it on the same server in the same run: kube-burner,
where it can be built, and a Go program that works as it does (bench/go-client/burner); and bare creates with client-go,
which render, record and follow nothing."""

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from _measure import ROOT, SEATRIAL, TINY, cpu_of_one, left_out, sized, table, whole_of
from kubernetes_client import REAL_CREATES, go_creates, go_program, kube_burner

sys.path.insert(0, str(ROOT))

from cluster import Unavailable, up

FAKE_NODES, SECONDS, ROUNDS = sized((50, 15, 3), (5, 2, 1))
RATES = sized((20, 40, 80), (10,))
WHOLE = sized((2_000, 40), (20, 10))  # pods, a second
AT_ONCE = 5_000  # of kube-burner's rate and burst: more than any server takes
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
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: "{{{{.Name}}}}"}}
spec: {{{gate}containers: [{{name: main, image: none, resources: {{requests: {{cpu: 1m, memory: 1Mi}}}}}}]}}
"""
GATE = "schedulingGates: [{name: bench/never}], "
KUBE_BURNER_JOB = """
global: {{gc: true, measurements: [{{name: podLatency}}]}}
metricsEndpoints: [{{indexer: {{type: local, metricsDirectory: metrics}}}}]
jobs:
- name: whole
  namespace: whole
  namespacedIterations: false
  jobIterations: {count}
  qps: {rate}
  burst: {rate}
  preLoadImages: false
  podWait: false
  waitWhenFinished: true
  objects: [{{objectTemplate: pod.yaml, replicas: 1}}]
"""


def trial(kubeconfig: Path, audit_log: Path, rate: int) -> list[tuple[str, str]]:
    count = rate * SECONDS
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        suite = SUITE.format(kubeconfig=kubeconfig, audit_log=audit_log, count=count, rate=rate)
        (folder / "suite.yaml").write_text(suite)
        environment = {**os.environ, "SEATRIAL_STATE": str(folder / "state")}
        load = os.getloadavg()[0]
        _, _, code = cpu_of_one([SEATRIAL, "run", "suite.yaml"], cwd=folder, env=environment)
        (found,) = folder.glob("runs/*/results.json")
        cell = json.loads(found.read_text())["cells"][0]
    findings = {one["check"]: one["message"] for one in cell["findings"]}
    metrics = cell["metrics"]
    sent = metrics["rate"]["value"]
    scheduled = {name: 1000 * metrics["scheduled"][name]["value"] for name in ("p50", "p99")}
    return [
        (f"{rate}/s offered", f"{sent:.1f}/s sent, {sent / rate:.1%}; exit code {code}; load {load:.0f} before it"),
        ("  scheduled", f"p50 {scheduled['p50']:.1f} ms, p99 {scheduled['p99']:.1f} ms, by the audit log"),
        ("  measurement", findings["measurement"]),
        ("  audit log", findings["audit log"]),
        ("  clock", findings["clock"]),
    ]


@contextmanager
def pod_template(gate: str) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as template:
        template.write(POD.format(gate=gate))
        template.flush()
        yield template.name


def burner_command(kubeconfig: Path, prefix: str, count: int, rate: int, template: str, wait_s: int) -> list[str]:
    options = {
        "-kubeconfig": kubeconfig, "-prefix": prefix, "-template": template, "-count": count, "-qps": rate,
        "-burst": rate if rate == AT_ONCE else 1, "-wait": f"{wait_s}s",
    }  # fmt: skip
    return [str(go_program("burner")), *(str(part) for option in options.items() for part in option)]


def burner(kubeconfig: Path, prefix: str, count: int, rate: int, gate: str = GATE, wait_s: int = 0) -> dict[str, float]:
    with pod_template(gate) as template:
        output = subprocess.check_output(burner_command(kubeconfig, prefix, count, rate, template, wait_s))
    answer: dict[str, float] = json.loads(output)
    if answer["failed"]:
        raise SystemExit(f"the peer failed at {answer['failed']} creates")
    return answer


def by_the_log(audit_log: Path, prefix: str) -> list[float]:
    """Milliseconds from the create of each pod, as the API server received it, to the end of its binding."""
    begun: dict[str, float] = {}
    ended: dict[str, float] = {}
    for text in audit_log.read_text().splitlines():
        line = json.loads(text) if f'"{prefix}-' in text else {}
        of = line.get("objectRef", {})
        if line.get("verb") != "create" or line["stage"] != "ResponseComplete":
            continue
        if of.get("subresource") == "binding":
            ended[of["name"]] = datetime.fromisoformat(line["stageTimestamp"]).timestamp()
        else:
            begun[of["name"]] = datetime.fromisoformat(line["requestReceivedTimestamp"]).timestamp()
    return sorted(1000 * (ended[name] - begun[name]) for name in ended if name in begun)


def peer(kubeconfig: Path, audit_log: Path, rate: int) -> list[tuple[str, str]]:
    count, prefix = rate * SECONDS, f"burner-{rate}"
    seen = burner(kubeconfig, prefix, count, rate, gate="", wait_s=120)
    log = by_the_log(audit_log, prefix)
    true = {"p50": statistics.median(log), "p99": statistics.quantiles(log, n=100)[98]}
    off = ", ".join(f"{name} {seen[f'{name}_ms']:.0f} ms ({seen[f'{name}_ms'] - true[name]:+.0f})" for name in true)
    sent = f"{count / seen['wall_s']:.1f}/s sent; {seen['seen']:.0f} of {count} scheduled"
    return [("  kube-burner's way", f"{sent} at {off} by whole seconds, {len(log)} in the audit log")]


def costs(kubeconfig: Path) -> list[tuple[str, str]]:
    """Medians of rounds in which all take their turns."""
    from scale import submissions

    from seatrial.kubernetes import load_access

    access, found = load_access(kubeconfig), dict[str, list[tuple[float, float]]]()
    os.environ["KUBECONFIG"] = str(kubeconfig)

    def ours(follow: bool) -> tuple[float, float]:
        with tempfile.TemporaryDirectory() as place:
            rate, _, _, each = asyncio.run(submissions(access, Path(place), REAL_CREATES, follow))
        return rate, each

    def theirs(number: int, follow: bool) -> tuple[float, float]:
        answer = burner(kubeconfig, f"cost-{number}-{follow}".lower(), REAL_CREATES, AT_ONCE, wait_s=120 * follow)
        return REAL_CREATES / answer["wall_s"], answer["cpu_s"] / REAL_CREATES

    with_go = shutil.which("go") is not None
    for number in range(ROUNDS):
        for follow, how in ((False, "sent"), (True, "sent and followed")):
            found.setdefault(f"Seatrial, {how}", []).append(ours(follow))
            if with_go:
                found.setdefault(f"kube-burner's way, {how}", []).append(theirs(number, follow))
        if with_go:
            each = go_creates(str(kubeconfig), "default", number, "")
            found.setdefault("client-go alone (protobuf)", []).append((0.0, each))
    rows = []
    for name, metrics in found.items():
        rate, each = (statistics.median(values) for values in zip(*metrics, strict=True))
        rows.append((name, f"{each * 1e6:5.0f} µs of CPU each" + (f", {rate:,.0f}/s" if rate else "")))
    return rows


def whole(kubeconfig: Path, with_go: bool) -> list[tuple[str, str]]:
    """A complete trial, with planning, report and clean-up, beside a peer that only creates and follows, and beside
    kube-burner, which removes its pods too."""
    count, rate = WHOLE

    def row(name: str, cpu_s: float, wall_s: float, most: int, more: str) -> tuple[str, str]:
        return name, f"{cpu_s:.1f} s of CPU, {most / 1e6:.0f} MB, {wall_s:.0f} s; {more}"

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        suite = SUITE.replace("    audit_log: {audit_log}\n", "")
        (folder / "suite.yaml").write_text(suite.format(kubeconfig=kubeconfig, count=count, rate=rate))
        environment = {**os.environ, "SEATRIAL_STATE": str(folder / "state")}
        used = whole_of([SEATRIAL, "run", "suite.yaml"], cwd=folder, env=environment)
        (found,) = folder.glob("runs/*/results.json")
        cell = json.loads(found.read_text())["cells"][0]
        stages = [one for one in cell["findings"] if one["check"] == "in short"]
        rows = [row("Seatrial", *used, stages[0]["message"])]
    if with_go:
        with tempfile.NamedTemporaryFile("w+", suffix=".json") as answer, pod_template("") as template:
            argv = burner_command(kubeconfig, "whole", count, rate, template, wait_s=120)
            used = whole_of(["sh", "-c", f'"$@" > {answer.name}', "sh", *argv])
            seen = json.loads(Path(answer.name).read_text())["seen"]
        rows.append(row("kube-burner's way", *used, f"{seen:.0f} of {count} scheduled"))
    if with_go and not TINY and (program := kube_burner()):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "pod.yaml").write_text(POD.format(gate="").replace("{{.Name}}", "whole-{{.Iteration}}"))
            (folder / "job.yaml").write_text(KUBE_BURNER_JOB.format(count=count, rate=rate))
            argv = [str(program), "init", "--config", "job.yaml"]
            used = whole_of(argv, cwd=folder, env={**os.environ, "KUBECONFIG": str(kubeconfig)})
            (latencies,) = folder.glob("metrics/podLatencyMeasurement-*.json")
            seen = sum("schedulingLatency" in one for one in json.loads(latencies.read_text()))
        rows.append(row("kube-burner 2.7.3", *used, f"{seen:,} of {count:,} pods measured; all removed"))
    return rows


def main() -> None:
    try:
        cluster = up("bench-scale", fake_nodes=FAKE_NODES, gpus=8)
    except Unavailable as error:
        left_out(f"no cluster here: {error.what}")
    with_go = shutil.which("go") is not None
    if with_go:
        go_program("burner")  # built before anything is measured
    with cluster:
        rows, load = whole(cluster.kubeconfig, with_go), os.getloadavg()[0]
        table(f"{WHOLE[0]:,} pods at {WHOLE[1]}/s, all processes from start to end, load {load:.0f}", rows)
        for rate in RATES:
            rows = trial(cluster.kubeconfig, cluster.audit_log, rate)
            rows += peer(cluster.kubeconfig, cluster.audit_log, rate) if with_go else []
            wanted = "to reach: 95 %, and the watch off by 1 ms at p50, 10 ms at p99"
            table(f"{rate * SECONDS} pods on {FAKE_NODES} fake nodes, {os.cpu_count()} cores ({wanted})", rows)
        rows = costs(cluster.kubeconfig)
        load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
        table(f"{REAL_CREATES:,} creates on the same API server, all at once, medians of {ROUNDS}, {load}", rows)


if __name__ == "__main__":
    main()
