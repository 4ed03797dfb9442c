"""200 cells of one `true` each, from suite to report: CPU time in all, beside ReFrame's."""

import os
import tempfile
from pathlib import Path

from _measure import SEATRIAL, cpu_of, environment, sized, table

CELLS = sized(200, 4)
TIMES = sized(3, 1)
SUITE = """
name: bench
trials:
  nothing: {{kind: runtime, facts: false, matrix: {{n: [{numbers}]}}, run: ["true"]}}
"""
REFRAME = """
import reframe as rfm
import reframe.utility.sanity as sn

@rfm.simple_test
class Nothing(rfm.RunOnlyRegressionTest):
    n = parameter(range({cells}))
    valid_systems = ['*']
    valid_prog_environs = ['*']
    executable = 'true'

    @sanity_function
    def ok(self):
        return True
"""


def main() -> None:
    reframe = environment("reframe", "reframe-hpc==4.10.*").with_name("reframe")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        env = {**os.environ, "SEATRIAL_STATE": str(home / "state"), "HOME": folder}
        (home / "suite.yaml").write_text(SUITE.format(numbers=", ".join(map(str, range(CELLS)))))
        ours = min(cpu_of([SEATRIAL, "run", "suite.yaml"], cwd=home, env=env) for _ in range(TIMES))
        (home / "nothing.py").write_text(REFRAME.format(cells=CELLS))
        theirs = cpu_of([reframe, "-c", "nothing.py", "-r", "--prefix", home / "rfm"], cwd=home, env=env)
    if ours[2] or theirs[2]:
        raise SystemExit(f"a run failed: seatrial {ours[2]}, reframe {theirs[2]}")
    table(
        f"{CELLS} cells of `true`, CPU time in all, children included",
        [
            ("seatrial run", f"{ours[0]:6.2f} s CPU, {ours[1]:6.1f} s wall   (to reach: < 4 s CPU; best of {TIMES})"),
            (
                "reframe -r",
                f"{theirs[0]:6.2f} s CPU, {theirs[1]:6.1f} s wall   ({theirs[0] / ours[0]:.1f} times our CPU)",
            ),
        ],
    )


if __name__ == "__main__":
    main()
