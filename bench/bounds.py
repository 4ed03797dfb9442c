"""Bounds for one new run: what they cost, how often they alarm for nothing and what they find, beside other formulas.

python bench/bounds.py [SERIES.jsonl.gz]

With a file of real series (a JSON object a line: `raw`, the values of each run; `ann`, the changes that people saw)
also: how many runs of those series are out of the bounds made from the runs before them, within parts that nobody cut.
"""

import gzip
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import numpy as np
from _measure import sized
from numpy.typing import NDArray
from scipy import stats

from seatrial.stats.bounds import FALSE_ALARM, prediction_interval, prediction_intervals

Floats = NDArray[np.float64]
Formula = Callable[[Floats, float], tuple[Floats, Floats]]  # (histories, floor) -> (center, half-width)
NOMINAL, FLOOR = FALSE_ALARM, 0.015
SERIES, RUNS = sized((1000, 400), (5, 50))
LENGTHS = (5, 10, 20, 100, 400)
VALUES = sized(2_000_000, 2_000)  # of a simulation, in all


def ours(x: Floats, floor: float) -> tuple[Floats, Floats]:
    fit = prediction_intervals(x, NOMINAL, floor)
    return fit.center, fit.half_width


def torchprime(x: Floats, floor: float) -> tuple[Floats, Floats]:
    """Its code, not its README: the confidence interval of the mean, the floor, and the range of what was seen."""
    n, mean = x.shape[1], x.mean(axis=1)
    of_mean = stats.t.ppf(1 - NOMINAL / 2, n - 1) * x.std(axis=1, ddof=1) / np.sqrt(n)
    terms = of_mean, floor * np.abs(mean), x.max(axis=1) - mean, mean - x.min(axis=1)
    return mean, np.maximum.reduce(terms)


def plain_t(x: Floats, floor: float) -> tuple[Floats, Floats]:
    n, mean = x.shape[1], x.mean(axis=1)
    half = stats.t.ppf(1 - NOMINAL / 2, n - 1) * x.std(axis=1, ddof=1) * np.sqrt(1 + 1 / n)
    return mean, np.maximum(half, floor * np.abs(mean))


def median_mad(x: Floats, floor: float) -> tuple[Floats, Floats]:
    n, middle = x.shape[1], np.median(x, axis=1)
    deviation = 1.4826 * np.median(np.abs(x - middle[:, np.newaxis]), axis=1)
    half = stats.t.ppf(1 - NOMINAL / 2, n - 1) * deviation * np.sqrt(1 + np.pi / (2 * n))
    return middle, np.maximum(half, floor * np.abs(middle))


FORMULAS: dict[str, Formula] = {
    "seatrial": ours,
    "torchprime": torchprime,
    "plain t": plain_t,
    "median, MAD": median_mad,
}
# Runs of one level around 1: name, scipy's distribution of one run.
KINDS = {
    "normal": stats.norm(1, 0.05),
    "heavy tails (t, 5 degrees)": stats.t(5, 1, 0.05 / np.sqrt(5 / 3)),
    "skewed (lognormal, cv 5 %)": stats.lognorm(np.sqrt(np.log(1.0025))),
    "skewed (lognormal, cv 20 %)": stats.lognorm(np.sqrt(np.log(1.04))),
}


def line(name: str, *cells: str) -> None:
    print(f"  {name:<29}" + "".join(f"{cell:>10}" for cell in cells))


def cpu_times() -> None:
    matrix = np.random.default_rng(0).normal(1, 0.01, (SERIES, RUNS))
    rows = matrix.tolist()

    def timed(work: Callable[[], object]) -> str:
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            work()
            best = min(best, time.process_time() - began)
        return f"{best:.3f} s"

    print(f"bounds of {SERIES:,} series of {RUNS} runs, CPU time, best of 3 (to reach: <= 2 s)")
    line("seatrial, one at a time", timed(lambda: [prediction_interval(row) for row in rows]))
    line("seatrial, all at once", timed(lambda: prediction_intervals(matrix)))
    for name in list(FORMULAS)[1:]:
        line(f"{name}, one at a time", timed(partial(each, FORMULAS[name], matrix)))


def each(formula: Formula, matrix: Floats) -> None:
    for row in matrix:
        formula(row[np.newaxis], FLOOR)


def false_alarms() -> None:
    print(
        f"\nfalse alarms, % of single good runs (nominal {NOMINAL:.1%}, no floor), by the number of runs in the history"
    )
    for kind, one in KINDS.items():
        line(kind, *(f"n={n}" for n in LENGTHS))
        for name, formula in FORMULAS.items():
            shares = []
            for n in LENGTHS:
                center, half = formula(one.rvs((VALUES // n, n), random_state=n), 0.0)
                shares.append(float((one.cdf(center - half) + one.sf(center + half)).mean()))
            line(f"  {name}", *(f"{share * 100:.2f}" for share in shares))


def power() -> None:
    print(
        "\nfound, % of single runs that are 5 % slower (cv 1 %; 1 % of the history are outliers of +30 %; floor 1.5 %)"
    )
    line("", *(f"n={n}" for n in LENGTHS))
    for name, formula in FORMULAS.items():
        shares = []
        for n in LENGTHS:
            rng = np.random.default_rng(n)
            shape = (VALUES // n, n)
            center, half = formula(rng.normal(1, 0.01, shape) * np.where(rng.random(shape) < 0.01, 1.3, 1), FLOOR)
            shares.append(float(stats.norm.sf((center + half - 1.05) / 0.0105).mean()))
        line(f"  {name}", *(f"{share * 100:.0f}" for share in shares))


def parts(path: str) -> Iterator[Floats]:
    """Of real series, cut wherever anybody saw a change."""
    with gzip.open(path, "rt") as file:
        for text in file:
            row = json.loads(text)
            series = np.array([sum(runs) / len(runs) for runs in row["raw"]])
            cuts = {0, len(series), *(cut for cuts in row["ann"].values() for cut in cuts)}
            yield from (series[start:stop] for start, stop in pairwise(sorted(cuts)))


def real(path: str) -> None:
    print("\nreal series: % of runs out of usable bounds (floor 1.5 %, cap 20 %); 'again': this run and the next one")
    whole = list(parts(path))
    for n in (10, 20, 50, 100):
        windows = [np.lib.stride_tricks.sliding_window_view(part, n + 2) for part in whole if len(part) >= n + 2]
        x = np.concatenate(windows)
        line(f"the {n} runs before ({len(x):,} runs)", "out", "again", "usable")
        for name, formula in FORMULAS.items():
            center, half = formula(x[:, :n], FLOOR)
            usable = half <= 0.2 * np.abs(center)
            off = x[:, n:] - center[:, np.newaxis]
            out = np.abs(off) > half[:, np.newaxis]
            again = out.all(axis=1) & (off[:, 0] * off[:, 1] > 0)
            shares = out[usable, 0].mean(), again[usable].mean(), usable.mean()
            line(f"  {name}", *(f"{share * 100:.2f}" for share in shares))


if __name__ == "__main__":
    cpu_times()
    false_alarms()
    power()
    if len(sys.argv) > 1:
        real(sys.argv[1])
