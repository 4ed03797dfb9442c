"""500 cells of `true` on 1,000 fake nodes, from suite to report: Seatrial's own CPU time for each, beside what one
`kubectl` process for each (create, wait, delete: the way of shell scripts) takes."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from _measure import ROOT, SEATRIAL, cpu_of_one, left_out, sized, table

sys.path.insert(0, str(ROOT))

from cluster import Cluster, Unavailable, up
from cluster.build import KUBERNETES, built

CELLS, FAKE_NODES, KUBECTLS = sized((500, 1000, 10), (5, 5, 1))
TO_REACH_MS = 10.0
SUITE = """
name: bench
targets:
  fake: {{kind: kubernetes, image: registry.example/any, parallel: {parallel}}}
machines:
  gpu: {{target: fake, gpu: {{count: 1}}}}
trials:
  nothing: {{kind: runtime, facts: false, machine: gpu, matrix: {{n: [{numbers}]}}, run: ["true"]}}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {{name: one-{number}}}
spec:
  template: {{spec: {{restartPolicy: Never, containers: [{{name: main, image: any, command: ["true"]}}]}}}}
"""


def ours(cluster: Cluster, parallel: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "suite.yaml").write_text(SUITE.format(numbers=", ".join(map(str, range(CELLS))), parallel=parallel))
        env = {**os.environ, "HOME": folder, "KUBECONFIG": str(cluster.kubeconfig)}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # users' Pythons keep what they have compiled
        cpu_s, wall_s, code = cpu_of_one([SEATRIAL, "run", "suite.yaml"], cwd=home, env=env)
    if code:
        raise SystemExit(f"the run failed: exit {code}")
    return cpu_s, wall_s


def by_kubectl(cluster: Cluster) -> float:
    """CPU of the three processes that a script starts for each."""
    spent = 0.0
    kubectl = [str(built(KUBERNETES)), "kubectl", "--kubeconfig", str(cluster.kubeconfig)]
    for number in range(KUBECTLS):
        name = f"job/one-{number}"
        for words in (["apply", "-f", "-"], ["wait", "--for=condition=complete", name], ["delete", name]):
            before = os.times()
            text = JOB.format(number=number) if words[0] == "apply" else ""
            subprocess.run([*kubectl, *words], input=text, text=True, check=True, stdout=subprocess.DEVNULL)
            after = os.times()
            spent += after.children_user + after.children_system - before.children_user - before.children_system
    return spent / KUBECTLS


def main() -> None:
    try:
        cluster = up("bench-cells", fake_nodes=FAKE_NODES, gpus=8)
    except Unavailable as error:
        left_out(f"no cluster here: {error.what}")
    with cluster:
        rows = []
        for parallel in (50, CELLS):
            cpu_s, wall_s = min(ours(cluster, parallel) for _ in range(2))
            rows.append(
                (
                    f"seatrial run, {parallel} at a time",
                    f"{1000 * cpu_s / CELLS:6.1f} ms CPU a cell (to reach: <= {TO_REACH_MS:g}), {cpu_s:.2f} s in all, "
                    f"{wall_s:.1f} s wall; best of 2",
                )
            )
        rows.append(("kubectl apply, wait, delete", f"{1000 * by_kubectl(cluster):6.1f} ms CPU a cell, no verdict"))
    table(f"{CELLS} cells of `true` on {FAKE_NODES:,} fake nodes", rows)


if __name__ == "__main__":
    main()
