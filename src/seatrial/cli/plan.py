"""`seatrial plan`: what would run, what would not and why, how long and for how much. Touches no target."""

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from seatrial.cli.common import HISTORY, RUNS, SELECTING, plan_of, print_lines
from seatrial.job import Contents, Excluded, SkippedItem, count, table_axes
from seatrial.plan import Plan
from seatrial.plan.expand import short_need
from seatrial.plan.pairwise import REPEAT
from seatrial.suite import Cell

if TYPE_CHECKING:
    from seatrial.report.terminal.lines import Line

_LISTED = 40


@click.command()
@click.argument("suite", type=click.Path(path_type=Path))
@SELECTING
@click.option("--list", "list_cells", is_flag=True, help="List every cell with its hash.")
@click.option("--json", "as_json", is_flag=True, help="For programs; every excluded combination with its reason.")
@HISTORY
@RUNS
def command(
    suite: Path,
    max_cost: float | None,
    list_cells: bool,
    as_json: bool,
    runs: Path,
    history: str | None,
    **chosen: Any,
) -> None:
    """Show what running SUITE would do: its cells, its excluded combinations with their reasons, hours and price."""
    from seatrial.engine.prepare import with_contents

    made = plan_of(suite, runs, history=history, **chosen)
    plan = with_contents(made.plan)
    if as_json:
        click.echo(json.dumps(plan.as_json(), indent=1, ensure_ascii=False))
    else:
        columns = shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() else 120
        print_lines(_lines(plan, list_cells, columns))
    plan.check_cost(made.suite.max_cost if max_cost is None else max_cost)


def _lines(plan: "Plan", list_cells: bool, columns: int) -> "list[Line]":
    grids = plan_grids(plan)
    lines: list[Line] = [line for grid in grids for line in _grid_lines(grid, columns)]
    if grids:
        lines.append([(LEGEND, "dim")])
    apart = {grid.trial for grid in grids}
    listed = [cell for cell in plan.cells if list_cells or cell.trial not in apart]
    lines += [[(f"{cell.hash}  {cell.id}", "")] for cell in (listed if list_cells else listed[:_LISTED])]
    if len(listed) > _LISTED and not list_cells:
        lines.append([(f"and {len(listed) - _LISTED:,} more (--list shows all)", "")])
    groups = excluded_groups(plan)
    if groups:
        lines += [[], [(f"excluded ({len(plan.excluded):,}; --json has each with its reason)", "bold")]]
    for group in groups:
        lines.append([(f"{group.count:>6,}  {group.why}{f'   ({group.where})' if group.where else ''}", "")])
    contents = plan_contents(plan)
    lines += [[]] if contents else []
    for of_trial in contents:
        lines.append([(of_trial.text, "bold")])
        lines += [[(f"{one.count:>6,}  skipped: {one.why}   ({one.where})", "")] for one in of_trial.skipped]
    for why, number in unbounded(plan).items():
        lines += [[], [(f"metrics of {count(number, 'cell')} will not be judged: {why}", "yellow")]]
    return [*lines, [], *([(line, "bold")] for line in totals(plan).splitlines())]


def _grid_lines(grid: "Grid", columns: int) -> "list[Line]":
    from seatrial.report.view.words import pad, width

    keys, legend, gap = list(grid.columns), "", 2
    title = f"{grid.row_axis} \\ {grid.column_axis}"
    first = max(width(title), *(width(label) for label, _ in grid.rows))
    if first + sum(width(key) + 2 for key in keys) > columns:
        keys, gap = [_letter(number) for number in range(len(keys))], 1
        legend = "  ".join(f"{key}={column}" for key, column in zip(keys, grid.columns, strict=True))
    lines: list[Line] = [
        [(grid.trial, "bold")],
        [(pad(title, first), "bold"), *((f"{' ' * gap}{key}", "bold") for key in keys)],
    ]
    for label, marks in grid.rows:
        line: Line = [(pad(label, first), "")]
        for key, mark in zip(keys, marks, strict=True):
            before = (width(key) - 1) // 2  # a mark stands below the middle of its column's name
            line += [
                (" " * (gap + before), ""),
                (mark, _STYLES.get(mark, "dim")),
                (" " * (width(key) - 1 - before), ""),
            ]
        lines.append(line)
    return [*lines, *([[(legend, "")]] if legend else []), []]


_STYLES = {"●": "green", "x": "red"}


def _letter(number: int) -> str:
    return chr(ord("a") + number) if number < 26 else _letter(number // 26 - 1) + _letter(number % 26)


# A plan as a person reads it: a grid for each trial of two axes, excluded combinations by reason, the sums.


RUNS_MARK = "●"
_MARKS = {"needs": "–", "exclude": "x", "disabled": "x"}  # any other cause: not wanted this time
_NOT_WANTED = "·"
LEGEND = (
    f"{RUNS_MARK} runs   {_MARKS['needs']} lacks a capability   {_MARKS['exclude']} excluded   {_NOT_WANTED} not wanted"
)


class Grid(msgspec.Struct, frozen=True):
    """A trial of two axes."""

    trial: str
    row_axis: str
    column_axis: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]  # label, a mark for each column


class ExcludedGroup(msgspec.Struct, frozen=True):
    """Excluded combinations that have their reason in common."""

    why: str
    count: int
    where: str


def plan_grids(plan: Plan) -> list[Grid]:
    """For each trial that has exactly two axes, `repeat` apart."""
    marks: dict[tuple[str, ...], str] = {}
    for combination in plan.excluded:
        marks[_key(combination.trial, combination.axes)] = _MARKS.get(combination.cause, _NOT_WANTED)
    for cell in plan.cells:
        marks[_key(cell.trial, cell.axes)] = RUNS_MARK
    return [_grid(trial, axes, marks) for trial, axes in plan.labels.items() if len(axes) == 2]


def _key(trial: str, axes: dict[str, str]) -> tuple[str, ...]:
    return (trial, *(label for axis, label in axes.items() if axis != REPEAT))


def _grid(trial: str, axes: dict[str, tuple[str, ...]], marks: dict[tuple[str, ...], str]) -> Grid:
    """Rows and columns are those of the tables of a run."""
    (row_axis,), column_axis = table_axes({axis: len(labels) for axis, labels in axes.items()})
    turned = next(iter(axes)) == column_axis
    rows = [
        (row, tuple(marks.get((trial, column, row) if turned else (trial, row, column), " ") for column in columns))
        for columns in [axes[column_axis]]
        for row in axes[row_axis]
    ]
    return Grid(trial, row_axis, column_axis, axes[column_axis], tuple(rows))


def excluded_groups(plan: Plan) -> list[ExcludedGroup]:
    """Most frequent first. Reasons that differ only in who and where are one group; the JSON form has each in full."""
    groups: dict[str, list[Excluded]] = {}
    for combination in plan.excluded:
        why = short_need(combination.why) if combination.cause == "needs" else f"{combination.cause}: {combination.why}"
        groups.setdefault(why, []).append(combination)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [
        ExcludedGroup(excluded[0].why, 1, _where(excluded))
        if len(excluded) == 1 and excluded[0].cause == "needs"
        else ExcludedGroup(why, len(excluded), _where(excluded))
        for why, excluded in ordered
    ]


def _where(excluded: list[Excluded]) -> str:
    return _where_of([combination.axes for combination in excluded])


def _where_of(places: Iterable[dict[str, str]]) -> str:
    """`runtime a, b; machine c, d and 7 more`"""
    labels: dict[str, dict[str, None]] = {}
    for axes in places:
        for axis, label in axes.items():
            labels.setdefault(axis, {})[label] = None
    return "; ".join(f"{axis} {_some(list(found))}" for axis, found in labels.items())


def _some(labels: list[str]) -> str:
    return ", ".join(labels[:4]) + (f" and {len(labels) - 4} more" if len(labels) > 4 else "")


class ContentsGroup(msgspec.Struct, frozen=True):
    """What the cells of a trial consist of."""

    text: str
    skipped: tuple[ExcludedGroup, ...]  # by their reason; `count` over all cells


def plan_contents(plan: Plan) -> list[ContentsGroup]:
    """Of each trial whose cells consist of things that are known before."""
    trials: dict[str, list[tuple[Cell, Contents]]] = {}
    for cell in plan.cells:
        if cell.contents is not None:
            trials.setdefault(cell.trial, []).append((cell, cell.contents))
    return [_contents_group(trial, found) for trial, found in trials.items()]


def _contents_group(trial: str, found: list[tuple[Cell, Contents]]) -> ContentsGroup:
    item = found[0][1].item
    numbers = sorted({one.count for _, one in found})
    each = count(numbers[0], item) if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,} {item}s"
    ways = sum(one.ways for _, one in found)
    text = f"{trial}: {each}{' in each cell' if len(found) > 1 else ''}, {count(ways, 'request')} in all"
    by_reason: dict[str, list[tuple[Cell, SkippedItem]]] = {}
    for cell, one in found:
        for skipped in one.skipped:
            by_reason.setdefault(skipped.why, []).append((cell, skipped))
    groups = []
    for why, ones in by_reason.items():
        names = _some(list(dict.fromkeys(skipped.name for _, skipped in ones)))
        where = _where_of([cell.axes for cell, _ in ones])
        groups.append(ExcludedGroup(why, len(ones), f"{names}{f'; {where}' if where else ''}"))
    return ContentsGroup(text, tuple(groups))


def unbounded(plan: Plan) -> dict[str, int]:
    """Why cells have no bounds although their trial names a baseline, and how many."""
    return dict(Counter(cell.unbounded for cell in plan.cells if cell.unbounded))


def totals(plan: Plan) -> str:
    """`102 cells, 42 excluded combinations of 144 combinations; 25.5 hours, price 37.20; 3 cells without estimate`"""
    counts = plan.counts
    text = f"{count(counts['cells'], 'cell')}, {counts['holes']:,} excluded"
    text += f" of {count(counts['combinations'], 'combination')}"
    known = counts["cells"] - plan.cost.unknown
    if known:
        text += f"; {plan.hours:,.2f} hours, price {plan.price:,.2f}"
    if plan.cost.unknown:
        text += f"; {count(plan.cost.unknown, 'cell')} without an estimate"
        if plan.cost.unbounded:
            text += ", and what they may cost has no bound"
        elif plan.cost.bound > plan.price:
            text += f", with the limits of their runs up to {plan.cost.bound:,.2f}"
    if plan.coverage is not None:
        pairs = plan.coverage
        text += f"\npairwise: {len(plan.cells):,} of {count(pairs.of_cells, 'cell')}"
        text += f", pairs covered {pairs.covered:,} / {pairs.possible:,} possible"
        text += f"; {len(pairs.impossible):,} pairs no valid cell has"
    return text
