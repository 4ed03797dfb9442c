"""A lasting shift within the bounds of one run: how soon it is found, how well it is dated, and how many false alarms.

Every alarm needs a confirming attempt that agrees, as with the default `confirm: 1`. On real series, which have no
second attempt, the next run stands for it. SEATRIAL_CHANGES_DATA names the labelled series (bench/_labels.py says in
which form); without it, only simulated noise is measured.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from _labels import labelled_series
from _measure import sized, table

from seatrial.record.history import RECENT
from seatrial.stats import bounds_for
from seatrial.stats.shift import Shift, find_shift

HISTORY, LATER, SHIFT = 20, 6, 2.67  # runs before, runs after, in standard deviations
NOISE = 0.03
SERIES = sized(4_000, 40)
LENGTHS = (20, 50, 100)
BLOCK = 10  # runs checked against the same bounds
CLEAR = 3  # runs next to a label that are left out

Runs = Sequence[tuple[str, float]]
Bounds = tuple[float, float]


def shift_at(runs: Runs, bounds: Bounds) -> Shift | None:
    return find_shift(runs, *bounds, center=sum(bounds) / 2)


def sides(runs: Runs, bounds: Bounds) -> tuple[int, int]:
    """The side on which the last run is out of bounds, and the side of a shift that it is part of; 0: neither."""
    value = runs[-1][1]
    shift = shift_at(runs, bounds)
    return (value > bounds[1]) - (value < bounds[0]), (1 if shift.up else -1) if shift else 0


def simulated(shifted: float) -> tuple[float, float, float]:
    """Shares of series with an alarm within LATER runs: by bounds of one run, in all; and of the shifts dated +-2."""
    dice = np.random.default_rng(18)
    single = found = dated = shifts = 0
    for _ in range(SERIES):
        values = dice.normal(1, NOISE, HISTORY + LATER)
        values[HISTORY:] += shifted * NOISE
        again = dice.normal(1 + shifted * NOISE, NOISE, LATER)
        bounds = bounds_for(values[:HISTORY].tolist())
        if bounds is None:
            continue
        runs = [(str(number), float(value)) for number, value in enumerate(values)]
        out = alarm = False
        for late in range(LATER):
            so_far = runs[: HISTORY + late + 1]
            confirming = [*so_far[:-1], ("", float(again[late]))]
            (one, first), (other, second) = sides(so_far, bounds), sides(confirming, bounds)
            out = out or (bool(one) and one == other)
            if not alarm and (one or first) and (one or first) == (other or second):
                alarm = True
                shift = shift_at(so_far, bounds)
                shifts += shift is not None
                dated += shift is not None and abs(int(shift.run) - HISTORY) <= 2
        single, found = single + out, found + alarm
    return single / SERIES, found / SERIES, dated / max(shifts, 1)


def quiet() -> Iterator[list[float]]:
    """Parts of the labelled series in which no person marked a change."""
    for one in labelled_series():
        marks = sorted({0, len(one.values), *(mark for marks in one.people for mark in marks)})
        yield from (one.values[begin + CLEAR : end - CLEAR] for begin, end in pairwise(marks))


def alarms(parts: Sequence[list[float]], n: int) -> tuple[int, int, int, int]:
    """Runs checked, and alarms by bounds of one run, by a shift, in all. Every run with an alarm counts."""
    checked = single = shifted = either = 0
    for values in parts:
        for at in range(n, len(values) - BLOCK + 1, BLOCK):
            bounds = bounds_for(values[at - n : at])
            if bounds is None:
                continue
            runs = [(str(number), value) for number, value in enumerate(values[at - n : at + BLOCK])]
            for now in range(n, n + BLOCK - 1):
                checked += 1
                before = runs[max(0, now + 1 - RECENT) : now]
                one, first = sides([*before, runs[now]], bounds)
                other, second = sides([*before, runs[now + 1]], bounds)
                single += bool(one) and one == other
                shifted += bool(first) and first == second
                either += bool(one or first) and (one or first) == (other or second)
    return checked, single, shifted, either


def main() -> None:
    single, found, dated = simulated(SHIFT)
    table(
        f"a shift of {SHIFT} sd after {HISTORY} runs, normal noise of {NOISE:.0%}, {SERIES:,} series",
        [
            (f"found within {LATER} runs", f"{found:.1%}   (to reach: >= 88 %; bounds of one run alone {single:.1%})"),
            ("dated within 2 runs", f"{dated:.1%}   (to reach: >= 80 %)"),
            ("no shift: series with an alarm", f"{simulated(0.0)[1]:.2%} in {LATER} runs"),
        ],
    )
    parts = list(quiet())
    if not parts:
        print("false alarms on real series: SEATRIAL_CHANGES_DATA names no labelled series")
        return
    rows = []
    for n in LENGTHS:
        checked, one, shift, either = alarms(parts, n)
        each = [f"{1000 * count / max(checked, 1):.2f}" for count in (either, one, shift)]
        rows.append((f"n = {n}", f"{each[0]} in all   (to reach: <= 3; one run {each[1]}, shift {each[2]})"))
    name = Path(os.environ.get("SEATRIAL_CHANGES_DATA", "made up")).name
    table(f"false alarms per 1,000 runs of quiet real series, bounds from n runs ({name})", rows)


if __name__ == "__main__":
    main()
