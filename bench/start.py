"""`seatrial --help`: CPU time, beside ReFrame's and a bare Python's."""

import statistics
import sys

from _measure import SEATRIAL, cpu_of, environment, table


def median_cpu(*argv: object) -> float:
    return statistics.median(cpu_of([str(part) for part in argv])[0] for _ in range(7))


def main() -> None:
    reframe = environment("reframe", "reframe-hpc==4.10.*").with_name("reframe")
    ours = median_cpu(SEATRIAL, "--help")
    theirs = median_cpu(reframe, "--help")
    table(
        "--help, CPU time, median of 7",
        [
            ("python -c pass", f"{median_cpu(sys.executable, '-c', 'pass') * 1000:5.0f} ms"),
            ("seatrial --help", f"{ours * 1000:5.0f} ms   (to reach: < 200 ms)"),
            ("reframe --help", f"{theirs * 1000:5.0f} ms   ({theirs / ours:.1f} times ours)"),
        ],
    )


if __name__ == "__main__":
    main()
