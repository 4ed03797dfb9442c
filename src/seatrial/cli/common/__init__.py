"""What several commands share: the folder of runs, the selection of cells, and the loading of suites."""

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from seatrial.job import RunResults
    from seatrial.job.plan import PlanFile, PlannedCell
    from seatrial.plan import Plan
    from seatrial.record import RunFolder
    from seatrial.record.history import History
    from seatrial.suite import BaselineFile, Suite, TargetEntry, TrialModel

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
    from seatrial.record.results import ResultsError, read_results

    try:
        return read_results(find(runs, name).path)
    except ResultsError as error:
        fail(f"--against {name}: {error}")


def history_at(runs: Path, place: str | None) -> "History":
    """The history of a command with the options RUNS and HISTORY."""
    from seatrial.record.history import HistoryError, open_history

    try:
        return open_history(place or runs / "history.db")
    except HistoryError as error:
        fail(str(error))


def _money(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 <= value < math.inf:
        raise click.BadParameter(f"{value} is no amount of money", context, option)
    return value


_SELECTING = [
    click.option(
        "--select",
        "select",
        multiple=True,
        metavar="EXPR",
        help="Cells by id glob, axis=value or /hash; repeat for more.",
    ),
    click.option("--tag", "tag", multiple=True, help="Cells with this tag."),
    click.option("--pairwise", is_flag=True, help="A small set that still has every pair of values that can be had."),
    click.option("--repeat", type=click.IntRange(min=1), help="Each cell this many times."),
    click.option(
        "--target",
        metavar="T",
        help="Run everything there: a target of the suite, a kind (kubernetes), kind:key=value,… or a YAML file.",
    ),
    click.option("--max-cost", type=float, callback=_money, help="Refuse a plan that may cost more."),
]


def selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which cells."""
    return functools.reduce(lambda wrapped, option: option(wrapped), reversed(_SELECTING), command)


def fail(message: str, code: int = 2) -> NoReturn:
    click.echo(f"seatrial: {message}" if "\n" not in message else message, err=True)
    raise SystemExit(code)


def print_json(data: "dict[str, Any]") -> None:
    import json

    import msgspec

    click.echo(json.dumps(msgspec.to_builtins({"version": 1, **data}), indent=1, ensure_ascii=False))


def planned(folder: "RunFolder") -> "PlanFile":
    from seatrial.record import DamagedRun

    try:
        return folder.read_plan()
    except DamagedRun as error:
        fail(str(error), 3)


def find_own(runs: Path, name: str) -> "RunFolder":
    """The same, for what is more than reading: a copy is not to be worked on."""
    if "://" in name:
        fail(f"{name} is a copy, to be read by report, compare and logs; work on the run where it was begun")
    return find(runs, name)


def cells_of(folder: "RunFolder", expression: str | None) -> "list[PlannedCell]":
    """The cells of a run that an expression as of --select means; without one, all."""
    from seatrial.plan import UnknownName
    from seatrial.plan.select import select_cells

    cells = planned(folder).cells
    if expression is None:
        return cells
    try:
        return select_cells(cells, expression)
    except UnknownName as error:
        fail(f"{folder.run} has no cell {expression!r}{error.hint}")


def find(runs: Path, name: str) -> "RunFolder":
    """The run of that name; of an address, what was fetched from there."""
    from seatrial.record import UnknownRun, find_run

    if "://" in name:
        from seatrial.cli.common.copies import fetched

        return fetched(name)
    try:
        return find_run(runs, name)
    except UnknownRun as error:
        fail(str(error))


def plan_of(
    suite: Path,
    runs: Path,
    select: tuple[str, ...] = (),
    tag: tuple[str, ...] = (),
    pairwise: bool = False,
    repeat: int | None = None,
    failed: str | None = None,
    history: str | None = None,
    target: str | None = None,
) -> "tuple[Suite, Plan]":
    """The suite and its plan; what is wrong with either is said, and ends the command."""
    from seatrial.plan import PlanError, Selection, expand

    suite_read = loaded(suite, target, look_for_files=True)
    suite_read = suite_read.repeated(repeat) if repeat else suite_read
    try:
        plan = expand(suite_read, Selection(select, tag, pairwise), _durations(runs, history))
    except PlanError as error:
        fail(str(error))
    return suite_read, _undone(plan, find(runs, failed)) if failed else plan


def loaded(suite: Path, target: str | None = None, look_for_files: bool = False) -> "Suite":
    """The suite, with everything on `target` where one is given; `look_for_files`: for one who wants to run it."""
    from seatrial.plugins import models
    from seatrial.suite import SuiteError, choose_target, load

    try:
        read = load(suite, *models(), _read_baseline, look_for_files)
        read = read.on(choose_target(target, read.targets, models()[1])) if target else read
    except SuiteError as error:
        fail(str(error))
    for baselines in read.baselines.values():
        for warning in baselines.warnings:
            click.echo(f"seatrial: {warning}", err=True)
    return read


def _read_baseline(path: Path, trials: "Sequence[TrialModel]") -> "BaselineFile":
    from seatrial.baseline import read_for_trials

    return read_for_trials(path, trials)


def targets_of(suite: "Suite | None", target: str | None) -> "dict[str, TargetEntry]":
    """By name: the one that is asked for, else those of the suite, else this machine."""
    from seatrial.engine.verify import chosen_targets
    from seatrial.suite import SuiteError

    try:
        return chosen_targets(suite, target)
    except SuiteError as error:
        fail(str(error))


def check_cost(plan: "Plan", max_cost: float | None) -> None:
    from seatrial.plan import OverCost

    try:
        plan.check_cost(max_cost)
    except OverCost as error:
        fail(str(error))


def _undone(plan: "Plan", folder: "RunFolder") -> "Plan":
    """Those cells that did not pass in that run, or were not done. By id: fixing a suite changes hashes."""
    from dataclasses import replace

    from seatrial.job import Hole, count
    from seatrial.plan.select import hole_id

    results = folder.read_results()
    if results is None:
        fail(f"{folder.run} has no results yet; `seatrial attach {folder.run}` finishes it")
    wanted = {cell.id for cell in results.cells if not cell.done}
    if not wanted:
        fail(f"in {folder.run} nothing failed, and nothing was left out", 0)
    left_out = {hole_id(hole) for hole in plan.holes if hole.cause in ("select", "tag", "pairwise")}
    gone = wanted - {cell.id for cell in plan.cells} - left_out
    if gone:
        some = f"{', '.join(sorted(gone)[:3])}{', …' if len(gone) > 3 else ''}"
        cells = f"{len(gone)} of the {count(len(wanted), 'cell')} that did not pass in {folder.run}"
        click.echo(f"seatrial: {cells} {'is' if len(gone) == 1 else 'are'} not in the suite any more: {some}", err=True)
    others = [
        Hole(cell.trial, cell.axes, f"passed in {folder.run}", "select") for cell in plan.cells if cell.id not in wanted
    ]
    kept = plan.of(cell for cell in plan.cells if cell.id in wanted)
    return replace(kept, holes=(*plan.holes, *others))


def _durations(runs: Path, place: str | None) -> dict[str, float]:
    """What cells took before. A history that is broken takes the estimates away, not the plan."""
    if place is None and not (runs / "history.db").exists():
        return {}
    from seatrial.record.history import HistoryError

    try:
        return history_at(runs, place).durations()
    except HistoryError as error:
        click.echo(f"seatrial: planned without history: {error}", err=True)
        return {}


def duration(text: str) -> float:
    """Seconds of `90s`, `2h`, `1d`."""
    from seatrial.job.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        fail(str(error))
