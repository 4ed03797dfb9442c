"""Cells as rows and columns: one matrix per trial, including its excluded combinations."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from seatrial.job import Excluded, table_axes
from seatrial.report.view.words import axes_text, grouped

# Exclusion causes that mean "deselected in this run"; these combinations are not shown.
NOT_WANTED = frozenset({"tag", "select"})
# Beyond this number of rows, rows with only excluded combinations are left out.
MOST_EXCLUDED_ROWS = 200


class Placed(Protocol):
    """Anything with axis values: a planned cell, a cell's result."""

    @property
    def axes(self) -> dict[str, str]: ...
    @property
    def id(self) -> str: ...
    @property
    def trial(self) -> str: ...


_P = TypeVar("_P", bound=Placed)
_P_co = TypeVar("_P_co", bound=Placed, covariant=True)


@dataclass(frozen=True)
class Matrix(Generic[_P_co]):
    """`cells`, and reasons of `excluded` combinations, by (row, column). A position may be in neither."""

    trial: str
    fixed: str  # axes with a single value, as text
    row_title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[int, int], _P_co]
    excluded: Mapping[tuple[int, int], str]


AxisLabels = Mapping[str, Mapping[str, Sequence[str]]]  # trial -> axis -> values in suite order


@dataclass(frozen=True)
class Trial(Generic[_P]):
    """The cells and the excluded combinations of one trial."""

    name: str
    cells: list[_P]
    excluded: list[Excluded]
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)  # axis -> values in suite order

    @cached_property
    def values(self) -> dict[str, list[str]]:
        """The values of each axis: first those in `labels`, then others in order of appearance."""
        found: dict[str, dict[str, None]] = {}
        for axes in (*(cell.axes for cell in self.cells), *(one.axes for one in self.excluded)):
            for axis, value in axes.items():
                found.setdefault(axis, {})[value] = None
        return {
            axis: list(dict.fromkeys([*(value for value in self.labels.get(axis, ()) if value in seen), *seen]))
            for axis, seen in found.items()
        }

    @cached_property
    def axes(self) -> list[str]:
        """Axes with more than one value."""
        return [axis for axis, some in self.values.items() if len(some) > 1]

    def fixed(self, shown: Container[str] = ()) -> str:
        """Axes with a single value, except those in `shown`, as text."""
        found = self.values.items()
        return axes_text((axis, some[0]) for axis, some in found if len(some) == 1 and axis not in shown)


def trials(cells: Iterable[_P], excluded: Iterable[Excluded] = (), labels: AxisLabels | None = None) -> list[Trial[_P]]:
    """The trials of a run. If cells were deselected, only exclusions among the remaining axis values are kept."""
    by_trial = grouped(cells, lambda cell: cell.trial or cell.id.partition("[")[0])
    every = list(excluded)
    wanted = [one for one in every if one.cause not in NOT_WANTED]
    selected, all_excluded = len(wanted) < len(every), grouped(wanted, lambda one: one.trial)
    made = []
    for name in by_trial if selected else {**by_trial, **all_excluded}:
        own, left_out = by_trial.get(name, []), all_excluded.get(name, [])
        if selected:
            values = {pair for cell in own for pair in cell.axes.items()}
            left_out = [one for one in left_out if values.issuperset(one.axes.items())]
        made.append(Trial(name, own, left_out, (labels or {}).get(name, {})))
    return made


def matrices(
    cells: Iterable[_P], excluded: Iterable[Excluded] = (), labels: AxisLabels | None = None
) -> list[Matrix[_P]]:
    return [_matrix(trial) for trial in trials(cells, excluded, labels)]


def _matrix(trial: Trial[_P]) -> Matrix[_P]:
    values, labels = trial.values, trial.labels
    row_axes, column_axis = table_axes({axis: len(labels.get(axis, found)) for axis, found in values.items()})
    rows: dict[str, int] = {}
    columns = {value: number for number, value in enumerate(values[column_axis])} if column_axis else {}
    placed: dict[tuple[int, int], _P] = {}
    reasons: dict[tuple[int, int], str] = {}
    places = {axis: {value: place for place, value in enumerate(values[axis])} for axis in row_axes}

    def order(item: Placed | Excluded) -> list[int]:
        return [places[axis].get(item.axes.get(axis, ""), -1) for axis in row_axes]

    def row_label(axes: Mapping[str, str]) -> str:
        return ", ".join(axes.get(axis, "") for axis in row_axes) or trial.name

    def spot(axes: Mapping[str, str]) -> tuple[int, int]:
        row, column = row_label(axes), axes.get(column_axis, "")
        return rows.setdefault(row, len(rows)), columns.setdefault(column, len(columns))

    for cell in sorted(trial.cells, key=order):
        placed[spot(cell.axes)] = cell
    complete = {*row_axes, column_axis} - {""}
    for combination in sorted(trial.excluded, key=order):
        known = len(rows) < MOST_EXCLUDED_ROWS or row_label(combination.axes) in rows
        if complete <= combination.axes.keys() and known:
            reasons.setdefault(spot(combination.axes), combination.why)
    return Matrix(
        trial.name,
        trial.fixed({*row_axes, column_axis}),
        " × ".join(row_axes),
        tuple(rows),
        tuple(columns) or ("",),
        placed,
        reasons,
    )
