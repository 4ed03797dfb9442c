"""Cells laid out as rows and columns: one matrix for each trial, with its holes in their places."""

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from seatrial.job import Hole
from seatrial.report.text import axes_text

NOT_WANTED = frozenset({"tag", "select"})  # causes of holes that are so for this run only; they would hide the others
MOST_HOLE_ROWS = 200  # rows that hold nothing but holes are left out of a matrix when there are more rows than this


class Placed(Protocol):
    """Anything that stands somewhere on axes: a planned cell, a cell's result."""

    @property
    def id(self) -> str: ...
    @property
    def trial(self) -> str: ...
    @property
    def axes(self) -> dict[str, str]: ...


class Matrix(msgspec.Struct, frozen=True):
    """`cells` and `holes` are by (row, column); a hole's value is its reason. A place may be in neither."""

    trial: str
    fixed: str  # axes that have one value only, as text
    row_title: str
    column_title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[int, int], str]
    holes: Mapping[tuple[int, int], str]


def trial_of(cell: Placed) -> str:
    return cell.trial or cell.id.partition("[")[0]


def matrices(cells: Iterable[Placed], holes: Iterable[Hole] = ()) -> list[Matrix]:
    by_trial: dict[str, tuple[list[Placed], list[Hole]]] = {}
    for cell in cells:
        by_trial.setdefault(trial_of(cell), ([], []))[0].append(cell)
    all_holes = list(holes)
    selected = any(hole.cause in NOT_WANTED for hole in all_holes)
    for hole in all_holes:
        if hole.cause not in NOT_WANTED:
            by_trial.setdefault(hole.trial, ([], []))[1].append(hole)
    return [
        _matrix(trial, cells, _beside(cells, holes) if selected else holes)
        for trial, (cells, holes) in by_trial.items()
        if cells or not selected
    ]


def _beside(cells: list[Placed], holes: list[Hole]) -> list[Hole]:
    """Of a run of selected cells: only holes in their rows and columns."""
    values = {(axis, value) for cell in cells for axis, value in cell.axes.items()}
    return [hole for hole in holes if all(pair in values for pair in hole.axes.items())]


def _matrix(trial: str, cells: list[Placed], holes: list[Hole]) -> Matrix:
    values: dict[str, dict[str, None]] = {}
    for axes in (*(cell.axes for cell in cells), *(hole.axes for hole in holes)):
        for axis, value in axes.items():
            values.setdefault(axis, {})[value] = None
    row_axes, column_axis = _choose({axis: len(found) for axis, found in values.items()})
    rows: dict[str, int] = {}
    columns: dict[str, int] = {}
    placed: dict[tuple[int, int], str] = {}
    reasons: dict[tuple[int, int], str] = {}

    def spot(axes: Mapping[str, str]) -> tuple[int, int]:
        row = _row_label(axes, row_axes) or trial
        column = axes.get(column_axis, "")
        return rows.setdefault(row, len(rows)), columns.setdefault(column, len(columns))

    complete = {*row_axes, column_axis} - {""}
    if column_axis:
        columns.update({value: number for number, value in enumerate(values[column_axis])})
    for cell in cells:
        placed[spot(cell.axes)] = cell.id
    for hole in holes:
        known = len(rows) < MOST_HOLE_ROWS or (_row_label(hole.axes, row_axes) or trial) in rows
        if complete <= hole.axes.keys() and known:
            reasons.setdefault(spot(hole.axes), hole.why)
    shown = {*row_axes, column_axis}
    fixed = [(axis, next(iter(found))) for axis, found in values.items() if axis not in shown and len(found) == 1]
    return Matrix(
        trial,
        axes_text(fixed),
        " × ".join(row_axes),
        column_axis,
        tuple(rows),
        tuple(columns) or ("",),
        placed,
        reasons,
    )


def _choose(sizes: dict[str, int]) -> tuple[tuple[str, ...], str]:
    """The axes of the rows and the axis of the columns ("" for a plain list).

    Machines make the columns where there are any: what people ask is which runtime works on which machine, and a suite
    has more of everything else. Else it is the last axis. All other axes that vary make the rows together.
    """
    if len(sizes) < 2:
        return tuple(sizes), ""
    varying = [axis for axis, size in sizes.items() if size > 1]
    if "machine" in sizes:
        column = "machine"
    elif len(varying) == 1:
        column = next(axis for axis in reversed(sizes) if axis != varying[0])
    else:
        column = (varying or list(sizes))[-1]
    rows = tuple(axis for axis in varying if axis != column)
    return rows or (next(axis for axis in sizes if axis != column),), column


def _row_label(axes: Mapping[str, str], row_axes: tuple[str, ...]) -> str:
    if len(row_axes) == 1:
        return axes.get(row_axes[0], "")
    return ", ".join(axes.get(axis, "") for axis in row_axes)
