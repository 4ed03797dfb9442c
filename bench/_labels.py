"""Series that people labelled, and three metrics of how well changes that were found agree with their labels.

The file that SEATRIAL_CHANGES_DATA names has one JSON object a line: `raw` (the values of each run), `ann` (the first
runs after a change, by person), `suite` (where the series comes from). It is no part of this project.
"""

import gzip
import json
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _measure import TINY

MARGIN = 5  # runs that a change may be off


@dataclass(frozen=True)
class Labelled:
    source: str
    values: list[float]
    people: list[set[int]]
    agreed: list[int]  # where at least half of the people saw a change


@dataclass(frozen=True)
class Score:
    """F1 with index 0 free, the mean of series; the rest are counts that are added over series."""

    f1: float
    hits: int
    found: int
    wanted: int
    runs: int


def labelled_series() -> list[Labelled]:
    """Empty if no file is named; in the tiny form some that are made up."""
    named = os.environ.get("SEATRIAL_CHANGES_DATA")
    if named:
        return read(Path(named))
    return [_made_up(seed) for seed in range(8)] if TINY else []


def _made_up(seed: int) -> Labelled:
    """Up by a tenth and down again; one of the two people sees only the first change."""
    dice = np.random.default_rng(seed)
    values: list[float] = (np.repeat([100.0, 110.0, 100.0], 40) + dice.normal(size=120)).tolist()
    return Labelled(f"source {seed}", values, [{40, 80}, {40}], [40, 80])


def read(path: Path) -> list[Labelled]:
    series = []
    with gzip.open(path, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            people = [set(marks) for marks in row["ann"].values()]
            values = [statistics.fmean(run) for run in row["raw"]]
            series.append(Labelled(row["suite"], values, people, _agreed(people)))
    return series


def score(labelled: Labelled, found: Iterable[int]) -> Score:
    places = set(found)
    free = places | {0}
    people = [marks | {0} for marks in labelled.people]
    precision = len(pairs(set().union(*people), free)) / len(free)
    recall = statistics.fmean(len(pairs(marks, free)) / len(marks) for marks in people)
    f1 = 2 * precision * recall / (precision + recall)
    hits = len(pairs(labelled.agreed, places))
    return Score(f1, hits, len(places), len(labelled.agreed), len(labelled.values))


def metrics(scores: Sequence[Score]) -> tuple[float, float, float]:
    """(F1, cF1, false alarms per 1,000 runs)."""
    hits, found, wanted = (sum(getattr(s, name) for s in scores) for name in ("hits", "found", "wanted"))
    both = found + wanted
    return (
        statistics.fmean(s.f1 for s in scores),
        2 * hits / both if both else 0.0,
        1000 * (found - hits) / sum(s.runs for s in scores),
    )


def pairs(wanted: Iterable[int], found: Iterable[int]) -> dict[int, int]:
    """Each wanted place, in order, with the nearest place that nobody took yet, if one is within the margin."""
    free, taken = set(found), {}
    for place in sorted(wanted):
        near = [other for other in free if abs(other - place) <= MARGIN]
        if near:
            taken[place] = min(near, key=lambda other: (abs(other - place), other))
            free.remove(taken[place])
    return taken


def _agreed(people: list[set[int]]) -> list[int]:
    marks = sorted((place, who) for who, places in enumerate(people) for place in places)
    agreed, begin = [], 0
    while begin < len(marks):
        group = [mark for mark in marks[begin:] if mark[0] - marks[begin][0] <= MARGIN]
        if 2 * len({who for _, who in group}) >= len(people):
            agreed.append(int(statistics.median(place for place, _ in group)))
            begin += len(group)
        else:
            begin += 1
    return agreed
