"""Shared by several commands: options, exit codes of errors, loading and printing of suites, plans and runs."""

import functools
import json
import math
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from seatrial import SeatrialError, api
from seatrial.api import RunPlan, find, load, plan, read_results
from seatrial.job import RunResults
from seatrial.job.plan import PlannedCell
from seatrial.job.units import count, parse_duration
from seatrial.record import DamagedRun, RecordError, RunFolder
from seatrial.record.folder import ResultsError
from seatrial.record.history import History, HistoryError
from seatrial.report.terminal.lines import Line, is_ascii, paint, wants_colour

if TYPE_CHECKING:
    from seatrial.suite import Cell, Suite

RUNS = click.option(
    "--runs", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"), envvar="SEATRIAL_RUNS",
    show_default=True, help="Folder of all runs and their history.",
)  # fmt: skip


def completed(offer: Callable[[click.Context], Iterable[str]]) -> Callable[..., list[str]]:
    """For `shell_complete`: what `offer` returns, as far as it fits; nothing if a file cannot be read."""

    def complete(context: click.Context, _parameter: click.Parameter, beginning: str) -> list[str]:
        try:
            return [one for one in dict.fromkeys(offer(context)) if one.startswith(beginning)]
        except (SeatrialError, OSError):
            return []

    return complete


def _runs(context: click.Context) -> list[str]:
    runs = context.params.get("runs") or Path("runs")
    return ["last", *sorted(path.parent.name for path in runs.glob("*/plan.json"))]


complete_run = completed(_runs)
RUN = click.argument("run", shell_complete=complete_run)

HISTORY = click.option(
    "--history", metavar="FILE|URL", envvar="SEATRIAL_HISTORY",
    help="History database: a file, or postgresql://USER@HOST/DATABASE.  [default: history.db in the runs folder]",
)  # fmt: skip

AGAINST = click.option(
    "--against", metavar="RUN", shell_complete=complete_run,
    help="Compare with this run instead of each cell's previous run.",
)  # fmt: skip


def compared_with(runs: Path, name: str) -> RunResults:
    """Returns the results of the run given with --against."""
    try:
        return read_results(name, runs=runs)
    except ResultsError as error:
        fail(f"--against {name}: {error}")


def _money(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 <= value < math.inf:
        raise click.BadParameter(f"expected an amount of at least 0, got {value}", context, option)
    return value


def options(*decorators: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Combines options into one decorator, in the order of the help text."""
    return lambda command: functools.reduce(lambda wrapped, option: option(wrapped), reversed(decorators), command)


_SELECT = "Only cells with this id or glob, axis=value or /HASH. Repeat to add more cells."


def _cells_named(context: click.Context) -> "Sequence[Cell | PlannedCell]":
    """The cells of the run or suite that the command line names."""
    params = context.params
    given = next(iter(context.args), None)  # click has not assigned arguments before an option without its value
    if "run" in params:
        return find(params.get("runs") or Path("runs"), params["run"] or given or "last").read_plan().cells
    suite = params["suite"] if "folder" in params else given or params.get("suite")
    return plan(load(suite or "seatrial.yaml", check_files=False)).cells


def _expressions(context: click.Context) -> list[str]:
    cells = _cells_named(context)
    values = [f"{axis}={label}" for cell in cells for axis, label in cell.axes.items()]
    return [*values, *(f"{cell.trial}[*" for cell in cells if cell.axes), *(cell.id for cell in cells)]


complete_cell = completed(_expressions)
complete_tag = completed(lambda context: sorted({tag for cell in _cells_named(context) for tag in cell.tags}))
SELECT = click.option("--select", multiple=True, metavar="EXPR", help=_SELECT, shell_complete=complete_cell)
# The options that choose cells; `plan_of` takes all but --max-cost.
SELECTING = options(
    SELECT,
    click.option(
        "--tag",
        multiple=True,
        shell_complete=complete_tag,
        help="Only cells with this tag. Repeat to require several tags.",
    ),
    click.option("--pairwise", is_flag=True, help="Only a small set of cells that covers every valid pair of values."),
    click.option(
        "--repeat", type=click.IntRange(min=1), help="Run each cell this many times.  [default: the trial's `repeat`]"
    ),
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="PATH=VALUE",
        help="Change a field of the suite, such as runtimes.base.image=registry.example/base:2. Repeat for more.",
    ),
    click.option(
        "--target",
        metavar="T",
        help="Run every cell on this target: a name in the suite, a kind (kubernetes), kind:key=value,… or a file.",
    ),
    click.option(
        "--max-cost",
        type=float,
        metavar="PRICE",
        callback=_money,
        help="Exit 2 if the plan may cost more than this, such as 25.00.  [default: the suite's `max_cost`]",
    ),
)


def fail(message: str, code: int = 2) -> NoReturn:
    text = f"seatrial: {message}" if "\n" not in message else message
    if coloured := wants_colour(sys.stderr):
        text = _POSITION.sub("\x1b[1m\\g<0>\x1b[0m", _CARETS.sub("\x1b[1;31m\\g<0>\x1b[0m", text))
    click.echo(text, err=True, color=coloured or None)
    raise SystemExit(code)


# Of an error that shows its line: `suite.yaml:4:7:` or the name of the program, and the marks below that line.
_POSITION = re.compile(r"^(seatrial|\S+:\d+:\d+):", re.MULTILINE)
_CARETS = re.compile(r"(?<= \| )( *)\^+$", re.MULTILINE)


def fail_with(error: SeatrialError) -> NoReturn:
    """Exits 3 if the error is not the caller's mistake (a run or history that cannot be read or written), else 2."""
    from seatrial.engine import RunStopped

    infra = isinstance(error, DamagedRun | HistoryError | RecordError | RunStopped)
    fail(str(error), 3 if infra else 2)


def say(note: str) -> None:
    click.echo(f"seatrial: {note}", err=True)


def print_json(data: Mapping[str, object]) -> None:
    click.echo(json.dumps(msgspec.to_builtins({"version": 1, **data}), indent=1, ensure_ascii=False))


def print_lines(lines: Iterable[Line]) -> None:
    sys.stdout.write(paint(lines, wants_colour(sys.stdout), is_ascii(sys.stdout)))


def history_of(runs: Path, place: str | None) -> History:
    """Exits 2 for an invalid address. A history that cannot be used raises HistoryError later (exit 3)."""
    try:
        return api.history_of(runs, place)
    except HistoryError as error:
        fail(str(error))


def find_own(runs: Path, name: str) -> RunFolder:
    """Like `find`, for commands that change the run: refuses a copy."""
    if "://" in name:
        fail(f"{name} is a read-only copy (for report, compare, logs); run this command where the run was started")
    return find(runs, name)


def cells_of(folder: RunFolder, expression: str | None) -> list[PlannedCell]:
    """Returns the run's cells that match a --select expression; all without one."""
    from seatrial.plan.select import select_cells

    cells = folder.read_plan().cells
    return cells if expression is None else select_cells(cells, expression, folder.run)


def plan_of(
    suite: Path,
    runs: Path,
    select: tuple[str, ...] = (),
    failed: str | None = None,
    history: str | None = None,
    target: str | None = None,
    overrides: tuple[str, ...] = (),
    tag: tuple[str, ...] = (),
    strict: bool = False,
    list_warnings: bool = False,
    **chosen: Any,
) -> RunPlan:
    """Loads the suite and plans it; prints the plan's notes and warnings. With `strict`, exits 2 if there are any
    warnings."""
    read = loaded(suite, target, overrides, look_for_files=True)
    before = None
    if failed:
        folder = find(runs, failed)
        before = folder.read_results()
        if before is None:
            fail(f"{folder.run} has no results yet; finish it with `seatrial attach {folder.run}`")
        if all(cell.done for cell in before.cells):
            fail(f"nothing to rerun: every cell of {folder.run} ran and passed", 0)
    made = plan(read, select=select, tags=tag, failed=before, runs=runs, history=history, **chosen)
    for note in made.notes:
        say(note)
    warn(made.warnings, suite, strict or list_warnings)
    if strict and made.warnings:
        fail(f"--strict: {count(len(made.warnings), 'warning')}; fix what is named above, or leave out --strict")
    return made


def warn(warnings: Sequence[str], suite: Path, all_of_them: bool = False) -> None:
    """Prints warnings about checks; several as one line, unless the command is the one that lists them."""
    from seatrial.suite.yaml.problem import printable

    if all_of_them or len(warnings) < 2:
        for warning in warnings:
            say(f"warning: {printable(warning)}")
    else:
        say(f"{len(warnings)} warnings about checks of {suite}; `seatrial plan {shlex.quote(str(suite))}` lists them")


def loaded(
    suite: Path, target: str | None = None, overrides: tuple[str, ...] = (), look_for_files: bool = False
) -> "Suite":
    """Loads the suite with `--set`, and with every cell on `target` if given.
    `look_for_files`: also check that its files exist."""
    if suite == Path("seatrial.yaml") and not suite.exists():
        why = f"{suite}: cannot read the file: No such file or directory"
        fail(f"{why}\ncreate it with `seatrial init`, or name a suite")
    return load(suite, target=target, overrides=overrides, check_files=look_for_files)


def duration(text: str) -> float:
    """Parses `90s`, `2h` or `1d` into seconds."""
    try:
        return parse_duration(text)
    except ValueError as error:
        fail(str(error))
