"""The good files that bad ones are made of: those of a real run, made anew, and those of the examples and tests."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SEATRIAL = str(Path(sys.executable).with_name("seatrial"))
ROOT = Path(__file__).parents[2]

SUITE = r"""
name: seed
env: {LANG: C.UTF-8}
machines:
  cpu: {cpu: 1, memory: 1Gi, price: 0.5}
  large: {cpu: 64, gpu: {model: A100, count: 2, memory: 40Gi}}
  slices: {tpu: {type: v6e, topology: 4x4, slices: 2, chips: 4}, accelerator: {resource: example.com/ipu, count: 2}}
runtimes:
  base: {env: {A: b}}
  other: {needs: {gpu.count: ">=1"}}
trials:
  steps:
    kind: runtime
    matrix: {runtime: all, machine: cpu, n: [1, two]}
    exclude: [{runtime: base, n: two, why: not today}]
    commands: [sh, no-such-command]
    imports: [json]
    run: ["echo hello ${n}", "exit 4", {command: "echo 3; exit 3", exit: 3, matches: "[0-9]+"}]
    xfail: [{runtime: base, step: "command no-such-command", why: not there}]
    retries: 1
    timeout: {queue: 1h, run: 5m}
    tags: [quick]
  train:
    kind: training
    command: |
      for i in 0 1 2 3 4 5; do echo "step: $i, loss: 0.$i, time: 0.01"; done
      echo '{"step_execution_time": 0.5, "other": [1, null]}' > $SEATRIAL_FILES/train_metrics.json
      echo Finished training run
    timeout: {run: 5m, stall: 1m}
    log: {must: Finished training run, never: Traceback}
    loss: {pattern: 'loss: (\S+)', target: 0.5, tolerance: 0.1}
    metrics: {step_time: {file: '**/train_metrics.json', key: step_execution_time, unit: s, better: lower}}
    baseline: bounds.yaml
"""

BASELINE = """\
version: 1
baselines:
  train:  # of the training trial
    step_time:
      lower: 0.4
      upper: 0.6
      center: 0.5
      unit: s
      better: lower
      runs: 41
      since: "2026-10-03T06:00:00Z"
      method: prediction interval (Student's t)
      false_alarm: 0.001
      state: usable
      used: [nightly-1, nightly-2]
      left_out:
        the run failed: [nightly-3, nightly-4]
      changed: {run: nightly-9, at: "2026-11-12T06:00:00Z", before: 0.44, after: 0.5}
      reasons:
        - {at: "2026-10-20T06:00:00Z", what: updated, why: first bounds}
"""

TORCHPRIME = """\
benchmarks:
  llama-3-8b:
    name: Llama 3.0 8B
    step_time_lower_bound: 2.68109009
    step_time_upper_bound: 2.789223
    confidence_interval: 0.05407
    average: 2.7352
    sample_size: 427
    target_loss: 0.4735
    loss_tolerance: 0.001
metadata:
  query_start: '2025-07-01T00:00:00-07:00'
  query_end: '2025-07-23T12:20:48-07:00'
  confidence_level: 0.999
"""

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: one
clusters:
- name: c
  cluster: {server: "https://api.example:6443", insecure-skip-tls-verify: true, proxy-url: "http://proxy.example:3128"}
- name: plain
  cluster: {server: "http://127.0.0.1:8080", tls-server-name: api}
contexts:
- name: one
  context: {cluster: c, user: u, namespace: trials}
- name: two
  context: {cluster: plain, user: v}
users:
- name: u
  user: {token: abc, as: other, as-groups: [a, b], as-user-extra: {reason: [x]}}
- name: v
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin, args: [a], env: [{name: A, value: b}]}
"""


@dataclass(frozen=True)
class Seeds:
    """`run` is the folder of a finished run, `folder` the one that bad files are written to."""

    folder: Path
    run: Path

    @classmethod
    def make(cls, folder: Path) -> "Seeds":
        (folder / "suite.yaml").write_text(SUITE)
        (folder / "bounds.yaml").write_text(BASELINE)
        env = {**os.environ, "SEATRIAL_STATE": str(folder / "state"), "SEATRIAL_RUNS": str(folder / "runs")}
        done = subprocess.run([SEATRIAL, "run", "suite.yaml"], cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 1, done.stdout + done.stderr  # a step fails
        (run,) = folder.glob("runs/*/plan.json")
        return cls(folder, run.parent)

    def attempts(self, name: str) -> list[Path]:
        """That file of each attempt."""
        return sorted(self.run.glob(f"cells/*/*/{name}"))
