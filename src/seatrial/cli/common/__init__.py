"""What several commands share: options, errors as exit codes, and what is printed of suites, plans and runs."""

import functools
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from seatrial import SeatrialError
from seatrial.api import find

if TYPE_CHECKING:
    from seatrial.api import RunPlan
    from seatrial.job import RunResults
    from seatrial.job.plan import PlannedCell
    from seatrial.record import RunFolder
    from seatrial.record.history import History
    from seatrial.report.terminal.lines import Line
    from seatrial.suite import Suite

RUNS = click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs"),
    envvar="SEATRIAL_RUNS",
    show_default=True,
    help="Folder of all runs and their history.",
)


def _complete_run(context: click.Context, _parameter: click.Parameter, beginning: str) -> list[str]:
    """The ids of runs, for a shell."""
    runs = context.params.get("runs") or Path("runs")
    names = [path.parent.name for path in runs.glob("*/plan.json")]
    return sorted(name for name in ("last", *names) if name.startswith(beginning))


RUN = click.argument("run", shell_complete=_complete_run)

HISTORY = click.option(
    "--history",
    metavar="PLACE",
    envvar="SEATRIAL_HISTORY",
    help="The history: a file, or postgresql://USER@HOST/DATABASE.  [default: history.db in the folder of runs]",
)

AGAINST = click.option(
    "--against",
    metavar="RUN",
    help="What is new since that run, instead of since the last time that each cell ran; for releases.",
)


def compared_with(runs: Path, name: str) -> "RunResults":
    """The results of the run that the option AGAINST names."""
    from seatrial.api import read_results
    from seatrial.record.results import ResultsError

    try:
        return read_results(name, runs=runs)
    except ResultsError as error:
        fail(f"--against {name}: {error}")


def _money(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 <= value < math.inf:
        raise click.BadParameter(f"{value} is no amount of money", context, option)
    return value


def options(*decorators: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Several options as one decorator, in the order of the help text."""
    return lambda command: functools.reduce(lambda wrapped, option: option(wrapped), reversed(decorators), command)


SELECT = click.option(
    "--select", multiple=True, metavar="EXPR", help="Cells by id glob, axis=value or /hash; repeat for more."
)
# The options that say which cells; `plan_of` takes all but --max-cost.
SELECTING = options(
    SELECT,
    click.option("--tag", multiple=True, help="Cells with this tag."),
    click.option("--pairwise", is_flag=True, help="A small set that still has every pair of values that can be had."),
    click.option("--repeat", type=click.IntRange(min=1), help="Each cell this many times."),
    click.option(
        "--target",
        metavar="T",
        help="Run everything there: a target of the suite, a kind (kubernetes), kind:key=value,… or a YAML file.",
    ),
    click.option("--max-cost", type=float, callback=_money, help="Refuse a plan that may cost more."),
)


def fail(message: str, code: int = 2) -> NoReturn:
    click.echo(f"seatrial: {message}" if "\n" not in message else message, err=True)
    raise SystemExit(code)


def fail_with(error: SeatrialError) -> NoReturn:
    """3 for what is no mistake of the caller: a run or a place that cannot be read or written."""
    from seatrial.engine import RunStopped
    from seatrial.record import DamagedRun, RecordError
    from seatrial.record.history import HistoryError

    infra = isinstance(error, DamagedRun | HistoryError | RecordError | RunStopped)
    fail(str(error), 3 if infra else 2)


def say(note: str) -> None:
    click.echo(f"seatrial: {note}", err=True)


def print_json(data: Mapping[str, object]) -> None:
    import json

    import msgspec

    click.echo(json.dumps(msgspec.to_builtins({"version": 1, **data}), indent=1, ensure_ascii=False))


def print_lines(lines: "Iterable[Line]") -> None:
    from seatrial.report.terminal.lines import is_ascii, paint, wants_colour

    sys.stdout.write(paint(lines, wants_colour(sys.stdout), is_ascii(sys.stdout)))


def history_of(runs: Path, place: str | None) -> "History":
    """Ends the command with 2 for an address that can be none; a history that cannot be used ends it with 3."""
    from seatrial import api
    from seatrial.record.history import HistoryError

    try:
        return api.history_of(runs, place)
    except HistoryError as error:
        fail(str(error))


def find_own(runs: Path, name: str) -> "RunFolder":
    """The same, for what is more than reading: a copy is not to be worked on."""
    if "://" in name:
        fail(f"{name} is a copy, to be read by report, compare and logs; work on the run where it was begun")
    return find(runs, name)


def cells_of(folder: "RunFolder", expression: str | None) -> "list[PlannedCell]":
    """The cells of a run that an expression as of --select means; without one, all."""
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
    tag: tuple[str, ...] = (),
    **chosen: Any,
) -> "RunPlan":
    """The plan of a command; what a person should know of it is printed."""
    from seatrial.api import plan

    read = loaded(suite, target, look_for_files=True)
    before = None
    if failed:
        folder = find(runs, failed)
        before = folder.read_results()
        if before is None:
            fail(f"{folder.run} has no results yet; `seatrial attach {folder.run}` finishes it")
        if all(cell.done for cell in before.cells):
            fail(f"in {folder.run} nothing failed, and nothing was left out", 0)
    made = plan(read, select=select, tags=tag, failed=before, runs=runs, history=history, **chosen)
    for note in made.notes:
        say(note)
    return made


def loaded(suite: Path, target: str | None = None, look_for_files: bool = False) -> "Suite":
    """The suite, with everything on `target` where one is given; `look_for_files`: for one who wants to run it."""
    from seatrial.api import load

    read = load(suite, target=target, check_files=look_for_files)
    for baselines in read.baselines.values():
        for warning in baselines.warnings:
            say(warning)
    return read


def duration(text: str) -> float:
    """Seconds of `90s`, `2h`, `1d`."""
    from seatrial.job.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        fail(str(error))
