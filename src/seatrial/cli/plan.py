"""`seatrial plan`: what would run, what would not and why, how long and for how much. Touches no target."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.cli.options import HISTORY, RUNS, check_cost, fail, plan_of, selecting

if TYPE_CHECKING:
    from seatrial.plan import Plan
    from seatrial.plan.show import Grid
    from seatrial.report.terminal.lines import Line

_LISTED = 40


@click.command()
@click.argument("suite", type=click.Path(path_type=Path))
@selecting
@click.option("--list", "list_cells", is_flag=True, help="List every cell with its hash.")
@click.option("--json", "as_json", is_flag=True, help="For programs; every hole with its reason.")
@HISTORY
@RUNS
def command(
    suite: Path,
    select: tuple[str, ...],
    tag: tuple[str, ...],
    pairwise: bool,
    repeat: int | None,
    target: str | None,
    max_cost: float | None,
    list_cells: bool,
    as_json: bool,
    runs: Path,
    history: str | None,
) -> None:
    """Show what running SUITE would do: its cells, its holes with their reasons, hours and price."""
    suite_read, plan = plan_of(suite, runs, select, tag, pairwise, repeat, history=history, target=target)
    plan = _with_contents(plan)
    if as_json:
        click.echo(json.dumps(plan.as_json(), indent=1, ensure_ascii=False))
    else:
        _print(plan, list_cells)
    check_cost(plan, suite_read.max_cost if max_cost is None else max_cost)


def _with_contents(plan: "Plan") -> "Plan":
    from seatrial.engine.prepare import with_contents
    from seatrial.suite import SuiteError

    try:
        return with_contents(plan)
    except SuiteError as error:
        fail(str(error))


def _print(plan: "Plan", list_cells: bool) -> None:
    import shutil
    import sys

    from seatrial.report.terminal.lines import is_ascii, paint, wants_colour

    columns = shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() else 120
    lines = _lines(plan, list_cells, columns)
    colour = wants_colour(sys.stdout)
    click.echo(paint(lines, colour, is_ascii(sys.stdout)), nl=False, color=colour)


def _lines(plan: "Plan", list_cells: bool, columns: int) -> "list[Line]":
    from seatrial.job import count
    from seatrial.plan.show import LEGEND, hole_groups, plan_contents, plan_grids, totals, unbounded

    grids = plan_grids(plan)
    lines: list[Line] = [line for grid in grids for line in _grid_lines(grid, columns)]
    if grids:
        lines.append([(LEGEND, "dim")])
    apart = {grid.trial for grid in grids}
    listed = [cell for cell in plan.cells if list_cells or cell.trial not in apart]
    lines += [[(f"{cell.hash}  {cell.id}", "")] for cell in (listed if list_cells else listed[:_LISTED])]
    if len(listed) > _LISTED and not list_cells:
        lines.append([(f"and {len(listed) - _LISTED:,} more (--list shows all)", "")])
    groups = hole_groups(plan)
    if groups:
        lines += [[], [(f"holes ({len(plan.holes):,}; --json has each with its reason)", "bold")]]
    for group in groups:
        lines.append([(f"{group.count:>6,}  {group.why}{f'   ({group.where})' if group.where else ''}", "")])
    contents = plan_contents(plan)
    lines += [[]] if contents else []
    for of_trial in contents:
        lines.append([(of_trial.text, "bold")])
        lines += [[(f"{one.count:>6,}  skipped: {one.why}   ({one.where})", "")] for one in of_trial.skipped]
    for why, number in unbounded(plan).items():
        lines += [[], [(f"figures of {count(number, 'cell')} will not be judged: {why}", "yellow")]]
    return [*lines, [], *([(line, "bold")] for line in totals(plan).splitlines())]


def _grid_lines(grid: "Grid", columns: int) -> "list[Line]":
    from seatrial.report.text import pad, width

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
