"""`seatrial plan`: what would run, what would not and why, how long and for how much. Touches no target."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.cli.options import HISTORY, RUNS, check_cost, plan_of, selecting

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.plan import Plan
    from seatrial.plan.show import Grid

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
    if as_json:
        click.echo(json.dumps(plan.as_json(), indent=1, ensure_ascii=False))
    else:
        _print(plan, list_cells)
    check_cost(plan, suite_read.max_cost if max_cost is None else max_cost)


def _print(plan: "Plan", list_cells: bool) -> None:
    import sys

    from rich.console import Console

    from seatrial.plan import show

    terminal = sys.stdout.isatty()
    console = Console(highlight=False, markup=False, soft_wrap=not terminal, width=None if terminal else 120)
    shown = show.grids(plan)
    for grid in shown:
        _print_grid(console, grid, terminal)
    if shown:
        console.print(show.LEGEND, style="dim")
    apart = {grid.trial for grid in shown}
    listed = [cell for cell in plan.cells if list_cells or cell.trial not in apart]
    for cell in listed if list_cells else listed[:_LISTED]:
        console.print(f"{cell.hash}  {cell.id}")
    if len(listed) > _LISTED and not list_cells:
        console.print(f"and {len(listed) - _LISTED:,} more (--list shows all)")
    groups = show.hole_groups(plan)
    if groups:
        console.print(f"\nholes ({len(plan.holes):,}; --json has each with its reason)", style="bold")
    for group in groups:
        console.print(f"{group.count:>6,}  {group.why}{f'   ({group.where})' if group.where else ''}")
    for why, number in show.unbounded(plan).items():
        console.print(f"\nfigures of {number:,} cells will not be judged: {why}", style="yellow")
    console.print(f"\n{show.totals(plan)}", style="bold")


def _print_grid(console: "Console", grid: "Grid", terminal: bool) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    keys, legend = list(grid.columns), ""
    label_width = max(len(label) for label, _ in grid.rows)
    if label_width + sum(len(column) + 2 for column in grid.columns) > console.width - 4:
        keys = [_letter(number) for number in range(len(grid.columns))]
        legend = "  ".join(f"{key}={column}" for key, column in zip(keys, grid.columns, strict=True))
    table = Table(box=box.SIMPLE_HEAD if terminal else None, pad_edge=False, padding=(0, 1))
    table.add_column(Text(f"{grid.row_axis} \\ {grid.column_axis}"), no_wrap=True)
    for key in keys:
        table.add_column(Text(key), justify="center", no_wrap=True)
    for label, marks in grid.rows:
        table.add_row(Text(label), *(Text(mark, style=_STYLES.get(mark, "dim")) for mark in marks))
    console.print(grid.trial, style="bold")
    console.print(table)
    if legend:
        console.print(legend)


_STYLES = {"●": "green", "x": "red"}


def _letter(number: int) -> str:
    return chr(ord("a") + number) if number < 26 else _letter(number // 26 - 1) + _letter(number % 26)
