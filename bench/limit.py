"""How near `find: limit` is to the rate of a scheduler that binds a known number of pods per second: a second
kube-scheduler on a real API server, whose client allows so many requests. Fails if a result is more than 10 % off."""

import json
import os
import sys
import tempfile
from pathlib import Path

from _measure import ROOT, SEATRIAL, cpu_of_one, left_out, sized, table

sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests"))

from cluster import Unavailable, up
from kinds.scale.slow_scheduler import slow_pod, slow_scheduler

FAKE_NODES = sized(100, 20)
SEARCHES = sized(((8.0, 6), (20.0, 50), (40.0, 10)), ((20.0, 19),))  # rate of the scheduler, first rate
COUNT = sized(300, 130)
WITHIN = 0.1
SUITE = """
name: bench
targets: {{cluster: {{kind: kubernetes, kubeconfig: {kubeconfig}, namespace: default}}}}
trials:
  trial:
    kind: scale
    target: cluster
    retries: 0
    workload: {{template: pod.yaml, pods: 1}}
    count: {count}
    arrivals: {{rate: {first}/s}}
    until: scheduled
    find: limit
    settle: 10m
    bounds: {{scheduled.p99: 5m}}
"""


def search(kubeconfig: Path, first: float) -> tuple[str, float]:
    """What it found, and the metric; 0 without one."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "pod.yaml").write_text(json.dumps(slow_pod()))
        (folder / "suite.yaml").write_text(SUITE.format(kubeconfig=kubeconfig, first=first, count=COUNT))
        environment = {**os.environ, "SEATRIAL_STATE": str(folder / "state")}
        _, wall_s, _ = cpu_of_one([SEATRIAL, "run", "suite.yaml"], cwd=folder, env=environment)
        (results,) = folder.glob("runs/*/results.json")
        cell = json.loads(results.read_text())["cells"][0]
    (found,) = [one for one in cell["findings"] if one["check"] == "limit"]
    tries = len(found["evidence"].splitlines())
    value: float = cell["metrics"].get("limit", {}).get("value", 0.0)
    return f"{found['message']}; {tries} tries, {wall_s:.0f} s", value


def main() -> None:
    try:
        cluster = up("bench-limit", fake_nodes=FAKE_NODES, gpus=8)
    except Unavailable as error:
        left_out(f"no cluster here: {error.what}")
    rows, far = [], 0
    with cluster:
        for rate, first in SEARCHES:
            with slow_scheduler(cluster, rate):
                text, value = search(cluster.kubeconfig, first)
            far += abs(value / rate - 1) > WITHIN
            rows.append((f"{rate:g}/s, search from {first}/s", f"{value / rate - 1:+.1%}: {text}"))
    table(f"Limit of a throttled scheduler, windows from {COUNT} pods, load {os.getloadavg()[0]:.0f}", rows)
    if far:
        raise SystemExit(f"{far} results are off by more than {WITHIN:.0%}")


if __name__ == "__main__":
    main()
