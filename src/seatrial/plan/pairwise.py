"""Finds a small set of cells that covers every valid pair of values, and verifies the coverage."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import Any

import msgspec

from seatrial.suite import Cell, Group

REPEAT = "repeat"  # repeats of a combination are kept or dropped together


class Pair(msgspec.Struct, frozen=True, order=True):
    trial: str
    axis: str
    value: str
    other_axis: str
    other_value: str

    def as_json(self) -> dict[str, Any]:
        return {"trial": self.trial, "axes": {self.axis: self.value, self.other_axis: self.other_value}}


class Coverage(msgspec.Struct, frozen=True):
    """Coverage, counted from the kept cells independently of the code that chose them."""

    possible: int  # pairs in at least one valid cell
    covered: int
    missing: tuple[Pair, ...]  # possible and not covered: always none
    impossible: tuple[Pair, ...]  # pairs in no valid cell
    of_cells: int  # valid cells before the reduction

    def as_json(self) -> dict[str, Any]:
        lists = {name: [pair.as_json() for pair in getattr(self, name)] for name in ("missing", "impossible")}
        return {**msgspec.structs.asdict(self), **lists}


def covering_ids(cells: Sequence[Cell]) -> set[str]:
    """The ids of a covering set; deterministic."""
    by_trial: dict[str, list[Cell]] = {}
    for cell in cells:
        by_trial.setdefault(cell.trial, []).append(cell)
    return {name for of_trial in by_trial.values() for name in _cover(of_trial)}


def _cover(cells: Sequence[Cell]) -> set[str]:
    """Greedy: takes the combination with the most new pairs. Gains only shrink, so stale heap entries are safe."""
    combos: dict[tuple[tuple[str, str], ...], list[Cell]] = {}
    for cell in cells:
        combos.setdefault(tuple((axis, label) for axis, label in cell.axes.items() if axis != REPEAT), []).append(cell)
    numbers: dict[Any, int] = {}
    # A single axis has no pairs: then its values are covered.
    pairs = [
        [numbers.setdefault(pair, len(numbers)) for pair in (combinations(combo, 2) if len(combo) > 1 else combo)]
        for combo in combos
    ]
    groups = list(combos.values())
    # Ties are broken by hash: pseudo-random but deterministic. Plan order would favor similar cells.
    heap = [(-len(pairs[index]), members[0].hash, index) for index, members in enumerate(groups)]
    heapq.heapify(heap)
    open_pairs = set(numbers.values())
    kept: set[str] = {cell.id for cell in cells} if not numbers else set()
    while open_pairs:
        gain, order, index = heapq.heappop(heap)
        now = -sum(pair in open_pairs for pair in pairs[index])
        if now == gain:
            open_pairs.difference_update(pairs[index])
            kept.update(cell.id for cell in groups[index])
        elif now:
            heapq.heappush(heap, (now, order, index))
    return kept


def prove(
    before: Sequence[Cell], after: Iterable[Cell], valid: Iterable[Cell], axes: dict[str, tuple[Group, ...]]
) -> Coverage:
    """Counts the pairs of both sets from the cells alone, and lists the pairs that no valid cell has."""
    possible, covered = _pairs_of(before), _pairs_of(after)
    impossible = {pair for trial, groups in axes.items() for pair in _pairs_of_axes(trial, groups)} - _pairs_of(valid)
    return Coverage(
        possible=len(possible),
        covered=len(possible & covered),
        missing=tuple(sorted(possible - covered)),
        impossible=tuple(sorted(impossible)),
        of_cells=len(before),
    )


def _pairs_of(cells: Iterable[Cell]) -> set[Pair]:
    return {
        Pair(cell.trial, axis, value, other_axis, other)
        for cell in cells
        for (axis, value), (other_axis, other) in combinations(cell.axes.items(), 2)
        if REPEAT not in (axis, other_axis)
    }


def _pairs_of_axes(trial: str, groups: tuple[Group, ...]) -> Iterator[Pair]:
    placed = [(group, axis.name, [value.label for value in axis.values]) for group in groups for axis in group.axes]
    for (group, axis, labels), (other_group, other, other_labels) in combinations(placed, 2):
        zipped = group is other_group
        for label, other_label in zip(labels, other_labels, strict=True) if zipped else product(labels, other_labels):
            yield Pair(trial, axis, label, other, other_label)
