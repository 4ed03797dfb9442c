"""Changes in a series of 1,000 runs: CPU time beside Apache Otava, and beside people where labelled series are given.

SEATRIAL_CHANGES_DATA names the labelled series (bench/_labels.py says in which form).
"""

import json
import subprocess
import time

import numpy as np
from _labels import Labelled, labelled_series, metrics, score
from _measure import environment, sized, table

from seatrial.stats.changes import change_points

SERIES, RUNS, TIMES = sized((20, 1_000, 5), (2, 100, 1))
OTAVA = """
import json, sys, time
from otava.analysis import compute_change_points
said = json.load(sys.stdin)
best, found = float("inf"), []
for _ in range(said["times"]):
    began = time.process_time()
    found = [compute_change_points(s, max_pvalue=1e-6, min_magnitude=0.02)[0] for s in said["series"]]
    best = min(best, time.process_time() - began)
print(json.dumps([best, [[int(point.index) for point in points] for points in found]]))
"""


def main() -> None:
    series = [made_up(seed) for seed in range(SERIES)]
    change_points(series[0])  # what happens only once is not counted
    ours = min(cpu_s(series) for _ in range(TIMES))
    theirs, _ = otava(series, TIMES)
    table(
        f"changes in a series of {RUNS:,} runs, CPU time (mean of {SERIES} series, best of {TIMES})",
        [
            ("change_points", f"{1000 * ours / SERIES:7.2f} ms   (to reach: <= 2 ms)"),
            ("otava 0.8", f"{1000 * theirs / SERIES:7.2f} ms   ({theirs / ours:.0f} times ours)"),
        ],
    )
    labelled = labelled_series()
    if not labelled:
        print("how well they agree with people: SEATRIAL_CHANGES_DATA names no labelled series")
        return
    agreement(labelled)


def agreement(labelled: list[Labelled]) -> None:
    values = [one.values for one in labelled]
    began = time.process_time()
    ours = [[change.index for change in change_points(one)] for one in values]
    spent = 1e6 * (time.process_time() - began) / sum(map(len, values))
    _, theirs = otava(values, 1)
    rows = [
        ("change_points", shown(labelled, ours) + f"   {spent:.2f} ms for 1,000 runs"),
        ("otava, p 1e-6, 2 %", shown(labelled, theirs)),
    ]
    table(f"{len(labelled)} labelled series: F1, cF1, false alarms per 1,000 runs", rows)


def shown(labelled: list[Labelled], found: list[list[int]]) -> str:
    f1, agreed_f1, false = metrics([score(one, places) for one, places in zip(labelled, found, strict=True)])
    return f"{f1:.3f}  {agreed_f1:.3f}  {false:.2f}"


def made_up(seed: int) -> list[float]:
    """Five levels, noise of one part in a hundred, spikes."""
    dice = np.random.default_rng(seed)
    level = 100.0 + np.repeat(dice.uniform(-8, 8, size=5), RUNS // 5)
    spikes = (dice.random(RUNS) < 0.01) * dice.uniform(10, 40, size=RUNS)
    values: list[float] = (level + dice.normal(size=RUNS) + spikes).tolist()
    return values


def cpu_s(series: list[list[float]]) -> float:
    began = time.process_time()
    for values in series:
        change_points(values)
    return time.process_time() - began


def otava(series: list[list[float]], times: int) -> tuple[float, list[list[int]]]:
    python = environment("otava", "apache-otava==0.8.*")
    given = json.dumps({"series": series, "times": times})
    said = subprocess.run([python, "-c", OTAVA], input=given, capture_output=True, text=True)
    if said.returncode:
        raise SystemExit(f"otava failed:\n{said.stderr}")
    spent, found = json.loads(said.stdout)
    return spent, found


if __name__ == "__main__":
    main()
