"""What commands cost before they do their work: CPU time, beside ReFrame's and a bare Python's."""

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from _measure import SEATRIAL, cpu_of, environment, sized, table

TIMES = sized(10, 1)
SUITE = {"name": "one", "trials": {"t": {"kind": "runtime", "facts": False, "run": ["true"]}}}
REFRAME = """
import reframe as rfm

@rfm.simple_test
class One(rfm.RunOnlyRegressionTest):
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
        (home / "one.yaml").write_text(json.dumps(SUITE))  # JSON is YAML
        (home / "one.py").write_text(REFRAME)

        def median_cpu(*argv: object) -> float:
            return statistics.median(cpu_of([str(part) for part in argv], cwd=home, env=env)[0] for _ in range(TIMES))

        cpu_of([SEATRIAL, "run", "one.yaml"], cwd=home, env=env)
        run = next(path.name for path in (home / "runs").iterdir() if path.is_dir())
        rows = [("python -c pass", f"{median_cpu(sys.executable, '-c', 'pass') * 1000:5.0f} ms")]
        for goal, *argv in (
            (200, "--help"),
            (300, "plan", "one.yaml"),
            (300, "report", run),
            (300, "history"),
            (300, "attach", run),
        ):
            shown = " ".join(argv).replace(run, "RUN")
            rows.append((f"seatrial {shown}", f"{median_cpu(SEATRIAL, *argv) * 1000:5.0f} ms   (to reach: {goal} ms)"))
        for argv in (("--help",), ("-c", "one.py", "-l")):
            rows.append((f"reframe {' '.join(argv)}", f"{median_cpu(reframe, *argv) * 1000:5.0f} ms"))
    table(f"start, CPU time, median of {TIMES}", rows)


if __name__ == "__main__":
    main()
