"""Planning 5,000 cells: CPU time after start, beside ReFrame's listing of 5,000 cases."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from _measure import SEATRIAL, cpu_of, environment, sized, table

RUNTIMES, MACHINES, SIZES = sized((20, 50, 5), (2, 2, 2))
TIMES = sized(3, 1)
CELLS = RUNTIMES * MACHINES * SIZES
REFRAME = f"""
import reframe as rfm
import reframe.utility.sanity as sn

@rfm.simple_test
class Planned(rfm.RunOnlyRegressionTest):
    runtime = parameter(range({RUNTIMES}))
    machine = parameter(range({MACHINES}))
    size = parameter(range({SIZES}))
    valid_systems = ['*']
    valid_prog_environs = ['*']
    executable = 'true'

    @sanity_function
    def ok(self):
        return True
"""
ONE = {"name": "one", "trials": {"t": {"kind": "runtime", "run": ["true"]}}}
MANY = {
    "name": "many",
    "machines": {f"m{n}": {"cpu": n + 1, "price": 0.5} for n in range(MACHINES)},
    "runtimes": {f"r{n}": {"python": "3.11", "packages": [f"numpy=={n}"]} for n in range(RUNTIMES)},
    "trials": {
        "t": {
            "kind": "runtime",
            "matrix": {"runtime": "all", "machine": "all", "size": list(range(SIZES))},
            "estimate": "1m",
            "run": ["echo ${size}"],
        }
    },
}
INSIDE = """
import sys, time
from seatrial.plugins import models
from seatrial.plan import expand
from seatrial.suite import load
began = time.process_time()
plan = expand(load(sys.argv[1], *models()))
print(time.process_time() - began, len(plan.cells))
"""


def main() -> None:
    reframe = environment("reframe", "reframe-hpc==4.10.*").with_name("reframe")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        env = {**os.environ, "HOME": folder}
        # JSON is YAML.
        (home / "one.yaml").write_text(json.dumps(ONE))
        (home / "many.yaml").write_text(json.dumps(MANY))
        (home / "planned.py").write_text(REFRAME)
        start = min(cpu_of([SEATRIAL, "plan", "one.yaml"], cwd=home, env=env) for _ in range(TIMES))
        ours = min(cpu_of([SEATRIAL, "plan", "many.yaml"], cwd=home, env=env) for _ in range(TIMES))
        said = subprocess.run(
            [sys.executable, "-c", INSIDE, "many.yaml"], cwd=home, env=env, capture_output=True, text=True
        )
        theirs = cpu_of([reframe, "-c", "planned.py", "-l"], cwd=home, env=env)
    if start[2] or ours[2] or theirs[2] or said.returncode:
        raise SystemExit(f"failed: seatrial {start[2]} {ours[2]}, reframe {theirs[2]}\n{said.stderr}")
    inside, cells = said.stdout.split()
    if int(cells) != CELLS:
        raise SystemExit(f"{cells} cells, not {CELLS}")
    table(
        f"planning {CELLS:,} cells, CPU time, best of {TIMES}",
        [
            ("load and expand", f"{float(inside):6.2f} s"),
            (
                "seatrial plan",
                f"{ours[0]:6.2f} s   ({ours[0] - start[0]:.2f} s more than for one cell; to reach: < 0.5 s)",
            ),
            ("reframe -l", f"{theirs[0]:6.2f} s   ({theirs[0] / ours[0]:.0f} times ours)"),
        ],
    )


if __name__ == "__main__":
    main()
