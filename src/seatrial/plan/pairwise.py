"""A small set of cells that has every pair of values which any valid cell has, and the proof that it does."""

import heapq
from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import msgspec

from seatrial.suite import Axis, Cell, Group

REPEAT = "repeat"  # repeats are kept or left as a whole


class Pair(msgspec.Struct, frozen=True, order=True):
    trial: str
    axis: str
    value: str
    other_axis: str
    other_value: str

    def as_json(self) -> dict[str, Any]:
        return {"trial": self.trial, "axes": {self.axis: self.value, self.other_axis: self.other_value}}


class Coverage(msgspec.Struct, frozen=True):
    """Pairs counted anew from the cells that were kept, not by the code that chose them."""

    possible: int  # pairs that at least one valid cell has
    covered: int
    missing: tuple[Pair, ...]  # possible and not covered: always none
    impossible: tuple[Pair, ...]  # pairs of values that no valid cell has
    of_cells: int  # valid cells before the cut

    def as_json(self) -> dict[str, Any]:
        return {
            "possible": self.possible,
            "covered": self.covered,
            "missing": [pair.as_json() for pair in self.missing],
            "impossible": [pair.as_json() for pair in self.impossible],
            "of_cells": self.of_cells,
        }


def cut(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The cells of a covering set, in their order. The same cells always give the same set."""
    kept: set[str] = set()
    for trial in dict.fromkeys(cell.trial for cell in cells):
        kept |= _cover([cell for cell in cells if cell.trial == trial])
    return tuple(cell for cell in cells if cell.id in kept)


def _cover(cells: Sequence[Cell]) -> set[str]:
    """Greedy: always the combination with the most new pairs. Gains only shrink, so the heap may be out of date."""
    combos: dict[tuple[tuple[str, str], ...], list[Cell]] = {}
    for cell in cells:
        combos.setdefault(tuple((axis, label) for axis, label in cell.axes.items() if axis != REPEAT), []).append(cell)
    numbers: dict[Any, int] = {}
    pairs = []
    for combo in combos:
        # One axis alone has no pairs: then each of its values counts.
        wanted = combinations(combo, 2) if len(combo) > 1 else combo
        pairs.append([numbers.setdefault(pair, len(numbers)) for pair in wanted])
    # Equal gains go by hash: as good as drawn by lot, and always the same. Plan order would pile up similar cells.
    heap = [
        (-len(gain), members[0].hash, index)
        for index, (gain, members) in enumerate(zip(pairs, combos.values(), strict=True))
    ]
    heapq.heapify(heap)
    groups = list(combos.values())
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
    before: Iterable[Cell], after: Iterable[Cell], valid: Iterable[Cell], axes: dict[str, tuple[Group, ...]]
) -> Coverage:
    """Count the pairs of both sets from the cells alone, and list the pairs of the axes that no valid cell has."""
    before = list(before)
    possible = {pair for cell in before for pair in _pairs_of(cell)}
    covered = {pair for cell in after for pair in _pairs_of(cell)}
    impossible = {pair for trial, groups in axes.items() for pair in _pairs_of_axes(trial, groups)}
    impossible -= {pair for cell in valid for pair in _pairs_of(cell)}
    return Coverage(
        possible=len(possible),
        covered=len(possible & covered),
        missing=tuple(sorted(possible - covered)),
        impossible=tuple(sorted(impossible)),
        of_cells=len(before),
    )


def _pairs_of(cell: Cell) -> Iterable[Pair]:
    for (axis, value), (other_axis, other) in combinations(cell.axes.items(), 2):
        if REPEAT not in (axis, other_axis):
            yield Pair(cell.trial, axis, value, other_axis, other)


def _pairs_of_axes(trial: str, groups: tuple[Group, ...]) -> Iterable[Pair]:
    placed = [(number, axis) for number, group in enumerate(groups) for axis in group.axes]
    for (number, axis), (other_number, other) in combinations(placed, 2):
        for value, other_value in _label_pairs(axis, other, zipped=number == other_number):
            yield Pair(trial, axis.name, value, other.name, other_value)


def _label_pairs(axis: Axis, other: Axis, zipped: bool) -> Iterable[tuple[str, str]]:
    labels, others = ([value.label for value in each.values] for each in (axis, other))
    return zip(labels, others, strict=True) if zipped else product(labels, others)
