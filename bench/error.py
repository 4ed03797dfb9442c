"""Whether the stated error of times from the watch is right: trials at five loads on a real API server with fake nodes,
each quantile beside that of the server's audit log. Fails if fewer than 95 % of the true errors are covered."""

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path

from _measure import ROOT, SEATRIAL, cpu_of_one, left_out, sized, table

sys.path.insert(0, str(ROOT))

from cluster import Unavailable, up
from seatrial.job import convert, value_text
from seatrial.kinds.scale.driver.audit import read_audit
from seatrial.kinds.scale.driver.durations import stage_metrics, timeline_of
from seatrial.kinds.scale.driver.stages import reached_stages, read_records
from seatrial.kinds.scale.followed import SCHEDULED
from seatrial.kinds.scale.work import SUBMITTED, StageMetrics, Submission

FAKE_NODES, ROUNDS = sized((100, 4), (5, 1))
LOADS = sized(
    (
        ("rate: 10/s", 150),
        ("rate: 20/s", 300),
        ("rate: 40/s", 400),
        ("rate: 80/s", 600),
        ("burst: 80, every: 4s", 400),
    ),
    (("rate: 20/s", 40),),
)
QUANTILES, WANTED = ("p50", "p90", "p99"), 0.95
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
    arrivals: {{{arrivals}}}
    until: scheduled
"""


def trial(kubeconfig: Path, audit_log: Path, arrivals: str, count: int) -> dict[str, tuple[float, float]]:
    """The stated error of each quantile and the true one, in seconds; without the part of late sends."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "suite.yaml").write_text(SUITE.format(kubeconfig=kubeconfig, arrivals=arrivals, count=count))
        environment = {**os.environ, "SEATRIAL_STATE": str(folder / "state")}
        cpu_of_one([SEATRIAL, "run", "suite.yaml"], cwd=folder, env=environment)
        (attempt,) = folder.glob("runs/*/cells/*/1/driver")
        run, cell = attempt.parents[3].name, attempt.parents[1].name
        lines = (attempt / "records.jsonl").read_text().splitlines()
        submissions = {one.number: one for one in read_records(attempt / "files" / SUBMITTED, Submission)}
    notes = [json.loads(line).get("data", {}) for line in lines if '"note":"stage"' in line]
    stages = [convert(note, StageMetrics) for note in notes]
    (watched,) = [one for one in stages if one.name == SCHEDULED]
    prefix = f"scale-{hashlib.sha256(f'{run} {cell} 1'.encode()).hexdigest()[:8]}"
    reached = reached_stages(submissions, [], {})
    bound = read_audit(audit_log, prefix, submissions).bound
    reached.times[SCHEDULED].update({number: (times[0], times[0]) for number, times in bound.items()})
    true = stage_metrics(SCHEDULED, timeline_of(submissions, reached, 1e9))
    pairs = {one.name: (one, exact) for one, exact in zip(watched.quantiles, true.quantiles, strict=True)}
    return {
        name: (pairs[name][0].error_s or 0.0, (pairs[name][0].value or 0.0) - (pairs[name][1].value or 0.0))
        for name in QUANTILES
    }


def main() -> None:
    try:
        cluster = up("bench-error", fake_nodes=FAKE_NODES, gpus=8)
    except Unavailable as error:
        left_out(f"no cluster here: {error.what}")
    found: dict[str, list[dict[str, tuple[float, float]]]] = {}
    with cluster:
        for _ in range(ROUNDS):
            for arrivals, count in LOADS:
                measured = trial(cluster.kubeconfig, cluster.audit_log, arrivals, count)
                found.setdefault(arrivals, []).append(measured)
    rows = []
    for arrivals, trials in found.items():
        for name in QUANTILES:
            errors = [one[name] for one in trials]
            covered = sum(abs(true_s) <= stated_s for stated_s, true_s in errors)
            shown = ", ".join(f"{value_text(true_s, 's')} ± {value_text(stated_s, 's')}" for stated_s, true_s in errors)
            rows.append((f"{arrivals}, {name}", f"{covered} of {len(errors)}: {shown}"))
    of = {name: [one[name] for trials in found.values() for one in trials] for name in QUANTILES}
    share = {name: sum(abs(true_s) <= stated_s for stated_s, true_s in of[name]) / len(of[name]) for name in QUANTILES}
    rows.append(("all loads", ", ".join(f"{name} {share[name]:.0%}" for name in QUANTILES)))
    table(f"True error of the watch ± stated error (covered: wanted {WANTED:.0%}), load {os.getloadavg()[0]:.0f}", rows)
    if min(share.values()) < WANTED and ROUNDS > 1:
        raise SystemExit("the stated error is too small")


if __name__ == "__main__":
    main()
