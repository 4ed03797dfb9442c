"""`seatrial plan`: shows what would run, what is excluded and why, the time and the cost. Contacts no target."""

import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Container
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from seatrial import plugins
from seatrial.api import RunPlan
from seatrial.cli.common import HISTORY, RUNS, SELECTING, complete_cell, fail, plan_of, print_json, print_lines, say
from seatrial.engine.prepare import example_parts, with_contents
from seatrial.engine.secrets import known_mask
from seatrial.job import Contents, count, table_axes
from seatrial.plan import Plan
from seatrial.plan.pairwise import REPEAT
from seatrial.plan.select import select_cells
from seatrial.report.terminal.lines import Line
from seatrial.report.view.words import exclusions, listed, not_run_text, pad, where_text, width
from seatrial.suite import Cell
from seatrial.suite.yaml.problem import printable
from seatrial.targets import HasObjects, TargetError

_LISTED = 40


@click.command()
@click.argument("suite", type=click.Path(path_type=Path), default=Path("seatrial.yaml"))
@SELECTING
@click.option("--list", "list_cells", is_flag=True, help="List every cell with its hash.")
@click.option(
    "--show-job",
    metavar="CELL",
    help="Print the jobs of a cell, and their Kubernetes objects, as YAML.",
    shell_complete=complete_cell,
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the reason for each excluded combination.")
@click.option("--strict", is_flag=True, help="Exit 2 if there are warnings, such as bounds that cannot fail.")
@HISTORY
@RUNS
def command(
    suite: Path,
    max_cost: float | None,
    list_cells: bool,
    show_job: str | None,
    as_json: bool,
    runs: Path,
    history: str | None,
    **chosen: Any,
) -> None:
    """Show what SUITE (default: seatrial.yaml) would run: its cells, excluded combinations with their reasons, hours
    and price."""
    made = plan_of(suite, runs, history=history, list_warnings=True, **chosen)
    if show_job is not None:
        click.echo(_jobs_text(made, show_job), nl=False)
        return
    plan = with_contents(made.plan)
    for rule in plan.unmatched_rules:
        say(rule)
    if as_json:
        print_json(plan.as_json())
    else:
        columns = shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() else 120
        print_lines(_lines(plan, list_cells, columns))
    plan.check_cells()
    plan.check_cost(made.suite.max_cost if max_cost is None else max_cost)


def _jobs_text(made: RunPlan, expression: str) -> str:
    """The jobs of the matching cells and, for targets that submit objects, those objects, as YAML documents."""

    class Dumper(yaml.SafeDumper):
        """Writes text of several lines as it is."""

    Dumper.add_representer(
        str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" * ("\n" in text))
    )
    cells = select_cells(made.cells, expression, str(made.suite.path), made.excluded)
    texts: list[str] = []
    for cell, part in example_parts(cells):
        entry = made.suite.targets[part.target]
        kind = plugins.targets()[entry.kind]
        try:
            objects = kind.objects(entry.options, part.job) if isinstance(kind, HasObjects) else []
        except TargetError as error:
            fail(f"target {part.target} would reject {cell.id}: {error}")
        heading = printable(f"{cell.id} /{cell.hash}: {part.name} on target {part.target}")
        for one in (part, *objects):
            data = msgspec.to_builtins(one)
            texts.append(f"---\n# {heading}\n")
            texts.append(yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120))
    return known_mask(made.suite).text("".join(texts))


def _lines(plan: Plan, list_cells: bool, columns: int) -> list[Line]:
    """A table of all trials with one combination, if there are several; a grid for each trial with two axes; the cells
    of the others; excluded combinations by reason; totals."""
    marks = {_key(one.trial, one.axes): _MARKS.get(one.cause, _NOT_WANTED) for one in plan.excluded}
    marks |= {_key(cell.trial, cell.axes): _RUNS for cell in plan.cells}
    single = {trial: axes for trial, axes in plan.labels.items() if all(len(one) == 1 for one in axes.values())}
    single = single if len(single) > 1 and not list_cells else {}
    grids = {trial: axes for trial, axes in plan.labels.items() if len(axes) == 2 and trial not in single}
    lines = _single_lines(plan, single, marks) if single else []
    lines += [line for trial, axes in grids.items() for line in _grid_lines(trial, axes, marks, columns)]
    if grids or single:
        lines.append([(_LEGEND, "dim")])
    listed = [cell for cell in plan.cells if list_cells or (cell.trial not in grids and cell.trial not in single)]
    lines += [[(f"{cell.hash}  {cell.id}", "")] for cell in (listed if list_cells else listed[:_LISTED])]
    if len(listed) > _LISTED and not list_cells:
        lines.append([(f"and {len(listed) - _LISTED:,} more (--list shows all)", "")])
    if plan.excluded:
        title = "excluded" if all(one.cause in _MARKS for one in plan.excluded) else "excluded or deselected"
        lines += [[], [(f"{title} ({len(plan.excluded):,}; --json lists each)", "bold")]]
        lines += [
            [(f"{len(some):>6,}  {why}{f'   ({where})' if where else ''}", "")]
            for why, some, where in exclusions(plan.excluded)
        ]
    contents = _contents_lines(plan, single)
    lines += [[], *contents] if contents else []
    for why, number in Counter(cell.unbounded for cell in plan.cells if cell.unbounded).items():
        lines += [[], [(f"metrics of {count(number, 'cell')} will not be checked: {why}", "yellow")]]
    return [*lines, [], *([(line, "bold")] for line in totals(plan).splitlines())]


_RUNS = "●"
_MARKS = {"needs": "–", "exclude": "x", "disabled": "x"}  # any other cause: deselected
_NOT_WANTED = "·"
_STYLES = {_RUNS: "green", "x": "red"}
_LEGEND = "● runs   – missing capability   x excluded   · deselected"


def _key(trial: str, axes: dict[str, str]) -> tuple[str, ...]:
    return (trial, *(label for axis, label in axes.items() if axis != REPEAT))


def _grid_lines(
    trial: str, axes: dict[str, tuple[str, ...]], marks: dict[tuple[str, ...], str], columns: int
) -> list[Line]:
    """Uses the same rows and columns as the tables of a run, or turns them if their names fit only then. Where they do
    not fit either way, letters stand for the columns, the axis with fewer values."""

    def names_fit(rows: str, columns_: str) -> bool:
        first = max(map(width, (f"{rows} \\ {columns_}", *axes[rows])))
        return first + sum(width(label) + 2 for label in axes[columns_]) <= columns

    (row_axis,), column_axis = table_axes({axis: len(labels) for axis, labels in axes.items()})
    fits = names_fit(row_axis, column_axis)
    if not fits and (names_fit(column_axis, row_axis) or len(axes[row_axis]) < len(axes[column_axis])):
        row_axis, column_axis = column_axis, row_axis
        fits = names_fit(row_axis, column_axis)
    turned = next(iter(axes)) == column_axis
    title = f"{row_axis} \\ {column_axis}"
    first = max(map(width, (title, *axes[row_axis])))
    labels = axes[column_axis]
    keys, gap = (list(labels), 2) if fits else ([_letter(number) for number in range(len(labels))], 1)
    legend = "" if fits else "  ".join(f"{key}={label}" for key, label in zip(keys, labels, strict=True))
    header = [(pad(title, first), "bold"), *((f"{' ' * gap}{key}", "bold") for key in keys)]
    lines: list[Line] = [[(trial, "bold")], header]
    for row in axes[row_axis]:
        line: Line = [(pad(row, first), "")]
        for key, column in zip(keys, labels, strict=True):
            mark = marks.get((trial, column, row) if turned else (trial, row, column), " ")
            before = (width(key) - 1) // 2  # center the mark below its column's name
            after = width(key) - 1 - before
            line += [(" " * (gap + before), ""), (mark, _STYLES.get(mark, "dim")), (" " * after, "")]
        lines.append(line)
    wrapped = textwrap.wrap(legend, columns, break_long_words=False, break_on_hyphens=False)
    return [*lines, *([(line, "dim")] for line in wrapped), []]


def _letter(number: int) -> str:
    return chr(ord("a") + number) if number < 26 else _letter(number // 26 - 1) + _letter(number % 26)


def _single_lines(
    plan: Plan, trials: dict[str, dict[str, tuple[str, ...]]], marks: dict[tuple[str, ...], str]
) -> list[Line]:
    """A row for each trial: its axes, and the numbers of cases and requests if they are known."""
    axes = list(dict.fromkeys(axis for own in trials.values() for axis in own))
    contents = {cell.trial: cell.contents for cell in plan.cells if cell.contents is not None}
    items = list(dict.fromkeys(f"{one.item}s" for one in contents.values()))
    rows = [["", "trial", *axes, *items, *(["requests"] if items else [])]]
    for trial, own in trials.items():
        labels = {axis: label for axis, (label,) in own.items()}
        row = [marks.get(_key(trial, labels), _NOT_WANTED), trial, *(labels.get(axis, "") for axis in axes)]
        if items:
            found = contents.get(trial)
            row += [f"{found.count:,}" if found and item == f"{found.item}s" else "" for item in items]
            row.append(f"{found.ways:,}" if found else "")
        rows.append(row)
    widths = [max(width(row[column]) for row in rows) for column in range(len(rows[0]))]
    texts = ["  ".join(pad(text, widths[column]) for column, text in enumerate(row)).rstrip() for row in rows]
    return [[(texts[0], "bold")], *([(text, "")] for text in texts[1:]), []]


def _contents_lines(plan: Plan, shown: Container[str]) -> list[Line]:
    """Contents of each trial's cells that are known in advance unless `shown`, and what is skipped, by reason."""
    trials: dict[str, list[tuple[Cell, Contents]]] = {}
    for cell in plan.cells:
        if cell.contents is not None:
            trials.setdefault(cell.trial, []).append((cell, cell.contents))
    lines: list[Line] = []
    for trial, found in trials.items():
        item = found[0][1].item
        numbers = sorted({one.count for _, one in found})
        each = count(numbers[0], item) if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,} {item}s"
        ways, how = count(sum(one.ways for _, one in found), "request"), found[0][1].how
        if trial not in shown or any(one.skipped for _, one in found):
            each += " in each cell" if len(found) > 1 else ""
            lines.append([(f"{trial}: {each}, {ways} in all{how}", "bold")])
        by_reason: dict[str, list[tuple[Cell, str]]] = {}
        for cell, one in found:
            for skipped in one.skipped:
                by_reason.setdefault(skipped.why, []).append((cell, skipped.name))
        for why, ones in by_reason.items():
            names = listed(dict.fromkeys(name for _, name in ones))
            where = where_text(cell.axes for cell, _ in ones)
            lines.append([(f"{len(ones):>6,}  skipped: {why}   ({names}{f'; {where}' if where else ''})", "")])
    return lines


def totals(plan: Plan) -> str:
    """`102 cells, 40 excluded, 2 deselected of 144 combinations; 25.5 hours, price 37.20; no estimate for 3 cells`"""
    counts = plan.counts
    text = f"{count(counts['cells'], 'cell')}, {not_run_text(plan.excluded)}"
    text += f" of {count(counts['combinations'], 'combination')}"
    if counts["cells"] > plan.cost.unknown:
        text += f"; {plan.hours:,.2f} hours, price {plan.price:,.2f}"
    if plan.cost.unknown:
        text += f"; no estimate for {count(plan.cost.unknown, 'cell')}"
        if plan.cost.unbounded:
            text += " (no run limit either, so the cost is unlimited)"
        elif plan.cost.bound > plan.price:
            text += f" (price at most {plan.cost.bound:,.2f} by their run limits)"
    if pairs := plan.coverage:
        text += f"\npairwise: {len(plan.cells):,} of {count(pairs.of_cells, 'cell')}"
        text += f", pairs covered {pairs.covered:,} / {pairs.possible:,} possible"
        text += f"; pairs in no valid cell: {len(pairs.impossible):,}"
    return text
