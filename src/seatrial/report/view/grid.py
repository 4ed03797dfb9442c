"""Cells laid out as rows and columns: one matrix for each trial, with its excluded combinations in their places."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from seatrial.job import Excluded, table_axes
from seatrial.report.view.words import axes_text

NOT_WANTED = frozenset(
    {"tag", "select"}
)  # causes of excluded combinations that are so for this run only; they would hide the others
MOST_EXCLUDED_ROWS = (
    200  # rows that hold nothing but excluded combinations are left out of a matrix when there are more rows than this
)


class _OnAxes(Protocol):
    @property
    def axes(self) -> dict[str, str]: ...


_T = TypeVar("_T", bound=_OnAxes)


class Placed(_OnAxes, Protocol):
    """Anything that stands somewhere on axes: a planned cell, a cell's result."""

    @property
    def id(self) -> str: ...
    @property
    def trial(self) -> str: ...


_P = TypeVar("_P", bound=Placed)
_P_co = TypeVar("_P_co", bound=Placed, covariant=True)


@dataclass(frozen=True)
class Matrix(Generic[_P_co]):
    """`cells`, and `excluded` with its reason, by (row, column). A place may be in neither."""

    trial: str
    fixed: str  # axes that have one value only, as text
    row_title: str
    column_title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[int, int], _P_co]
    excluded: Mapping[tuple[int, int], str]


def trial_of(cell: Placed) -> str:
    return cell.trial or cell.id.partition("[")[0]


AxisLabels = Mapping[str, Mapping[str, Sequence[str]]]  # of each trial's axes, in the order of the suite


def matrices(
    cells: Iterable[_P], excluded: Iterable[Excluded] = (), labels: AxisLabels | None = None
) -> list[Matrix[_P]]:
    """Values of axes stand in the order of `labels`; without them, in that in which they first come."""
    return [
        _matrix(trial, cells, excluded, (labels or {}).get(trial, {}))
        for trial, cells, excluded in by_trial(cells, excluded)
    ]


def by_trial(cells: Iterable[_P], excluded: Iterable[Excluded] = ()) -> list[tuple[str, list[_P], list[Excluded]]]:
    """The cells of each trial with the excluded combinations that stand beside them."""
    found: dict[str, tuple[list[_P], list[Excluded]]] = {}
    for cell in cells:
        found.setdefault(trial_of(cell), ([], []))[0].append(cell)
    all_excluded = list(excluded)
    selected = any(combination.cause in NOT_WANTED for combination in all_excluded)
    for combination in all_excluded:
        if combination.cause not in NOT_WANTED:
            found.setdefault(combination.trial, ([], []))[1].append(combination)
    return [
        (trial, cells, _beside(cells, excluded) if selected else excluded)
        for trial, (cells, excluded) in found.items()
        if cells or not selected
    ]


def _beside(cells: Sequence[Placed], excluded: list[Excluded]) -> list[Excluded]:
    """Of a run of selected cells: only excluded combinations in their rows and columns."""
    values = {(axis, value) for cell in cells for axis, value in cell.axes.items()}
    return [combination for combination in excluded if all(pair in values for pair in combination.axes.items())]


def _matrix(
    trial: str, cells: Sequence[_P], excluded: list[Excluded], labels: Mapping[str, Sequence[str]]
) -> Matrix[_P]:
    values = axis_values(cells, excluded, labels)
    row_axes, column_axis = table_axes({axis: len(labels.get(axis, found)) for axis, found in values.items()})
    rows: dict[str, int] = {}
    columns: dict[str, int] = {}
    placed: dict[tuple[int, int], _P] = {}
    reasons: dict[tuple[int, int], str] = {}

    def spot(axes: Mapping[str, str]) -> tuple[int, int]:
        row = _row_label(axes, row_axes) or trial
        column = axes.get(column_axis, "")
        return rows.setdefault(row, len(rows)), columns.setdefault(column, len(columns))

    complete = {*row_axes, column_axis} - {""}
    if column_axis:
        columns.update({value: number for number, value in enumerate(values[column_axis])})
    for cell in _in_order(cells, row_axes, values):
        placed[spot(cell.axes)] = cell
    for combination in _in_order(excluded, row_axes, values):
        known = len(rows) < MOST_EXCLUDED_ROWS or (_row_label(combination.axes, row_axes) or trial) in rows
        if complete <= combination.axes.keys() and known:
            reasons.setdefault(spot(combination.axes), combination.why)
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


def axis_values(
    cells: Sequence[Placed], excluded: Sequence[Excluded], labels: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, None]]:
    """Of each axis those that there are, in order."""
    found: dict[str, dict[str, None]] = {}
    for axes in (*(cell.axes for cell in cells), *(combination.axes for combination in excluded)):
        for axis, value in axes.items():
            found.setdefault(axis, {})[value] = None
    return {
        axis: dict.fromkeys([*(value for value in labels.get(axis, ()) if value in seen), *seen])
        for axis, seen in found.items()
    }


def _in_order(items: Sequence[_T], row_axes: tuple[str, ...], values: dict[str, dict[str, None]]) -> list[_T]:
    """As their rows are to stand."""
    places = {axis: {value: place for place, value in enumerate(values[axis])} for axis in row_axes}
    return sorted(items, key=lambda item: [places[axis].get(item.axes.get(axis, ""), -1) for axis in row_axes])


def _row_label(axes: Mapping[str, str], row_axes: tuple[str, ...]) -> str:
    if len(row_axes) == 1:
        return axes.get(row_axes[0], "")
    return ", ".join(axes.get(axis, "") for axis in row_axes)
