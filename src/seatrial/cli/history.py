"""`seatrial history`: past metrics with their bounds and changes, alarms, and what people said of them."""

import difflib
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from seatrial.api import find, history_of
from seatrial.cli.common import HISTORY, RUNS, duration, fail, plan_of, print_json

if TYPE_CHECKING:
    from seatrial.job import Bound
    from seatrial.record.history import CellRow, History, HistoryError, Series, SuiteRun
    from seatrial.report.terminal.lines import Line

INFRA = 3
MOST_READ = 500  # series, for a terminal


class WithDefault(click.Group):
    """A group that takes what is none of its commands as the arguments of its first one."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        known = {*self.commands, *context.help_option_names}
        default = next(iter(self.commands))
        return super().parse_args(context, args if args and args[0] in known else [default, *args])

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        next(iter(self.commands.values())).format_options(context, formatter)
        self.format_commands(context, formatter)

    def collect_usage_pieces(self, context: click.Context) -> list[str]:
        return ["[OPTIONS] [TRIAL]", "| mark RUN ... | alarms"]


@click.group(cls=WithDefault)
def command() -> None:
    """Show what the cells of TRIAL came to over its runs, and draw its metrics: bounds, changes of level, alarms.
    Without TRIAL: what there is.

    \b
    seatrial history TRIAL --benchmark B --metric M    one series
    seatrial history mark RUN --false-alarm --reason TEXT
    seatrial history add                               runs of a time when the history could not be reached
    seatrial history alarms                            all alarms, and how often they were right
    seatrial history show mark                         a trial that is called like a command
    """


@command.command()
@click.argument("trial", required=False)
@click.option("--benchmark", metavar="B", help="Only benchmarks of this name, or that fit this glob.")
@click.option("--metric", metavar="M", help="Only metrics of this name, or that fit this glob.")
@click.option(
    "--last", metavar="N", type=click.IntRange(min=1), help="Only the last N points of each series.  [default: 400]"
)
@click.option("--since", metavar="TIME", help="Only runs from then on: 2026-10-03, 2026-10-03T12:00, or 30d ago.")
@click.option("--until", metavar="TIME", help="Only runs until then, as if there were no later ones.")
@click.option("--suite", type=click.Path(path_type=Path), help="Show the bounds of this suite's baselines.")
@click.option("--all", "all_metrics", is_flag=True, help="Also metrics that are not judged.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@RUNS
@HISTORY
def show(
    trial: str | None,
    benchmark: str | None,
    metric: str | None,
    last: int | None,
    since: str | None,
    until: str | None,
    suite: Path | None,
    all_metrics: bool,
    as_json: bool,
    runs: Path,
    history: str | None,
) -> None:
    """Show the cells and draw the metrics of TRIAL over its runs. Without TRIAL: what the history has."""
    from seatrial.record.history import HistoryError, TimeWindow
    from seatrial.report.terminal.history import RUNS_SHOWN
    from seatrial.report.view.series import POINTS_SHOWN

    past = history_of(runs, history)
    window = TimeWindow(_time(since, "--since"), _time(until, "--until", ends=True))
    try:
        if trial is None:
            if benchmark or metric or since or until:
                fail("--benchmark, --metric, --since and --until are of a TRIAL: `seatrial history TRIAL --metric M`")
            _show_all(past, as_json)
            return
        cells = past.cells(trial, RUNS_SHOWN)
        if not cells:
            _no_such_trial(past, trial)
        cells = [cell for cell in cells if window.has(cell.at_s)]
        chosen = _chosen(past.names(trial), benchmark, metric)
        judged = chosen if all_metrics or metric else [one for one in chosen if one.better]
        read = judged if as_json else judged[:MOST_READ]
        series = past.filled(read, last or POINTS_SHOWN, window)
        alarms = past.alarms()
    except HistoryError as error:
        _unusable(error)
    if len(read) < len(judged):
        warning = f"only the first {len(read)} of {len(judged)} series were read"
        click.echo(f"seatrial: {warning}; --benchmark and --metric choose others", err=True)
    bounds = _bounds(suite, runs) if suite else None
    _show(trial, [] if benchmark or metric else cells, series, len(chosen) - len(judged), alarms, bounds, as_json)


def _time(text: str | None, option: str, ends: bool = False) -> float | None:
    """A time, a day (its beginning, or its end), or so long ago."""
    import time
    from datetime import UTC, datetime

    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        if not text[:1].isdigit() or "-" in text:
            fail(f"{option} {text!r} is no time; write 2026-10-03, 2026-10-03T12:00 or 30d")
        return time.time() - duration(text.removesuffix(" ago"))
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return found.timestamp() + (86_400 - 1e-6 if ends and len(text) == len("2026-10-03") else 0.0)


@command.command()
@click.argument("names", metavar="[RUN]...", nargs=-1)
@RUNS
@HISTORY
def add(names: tuple[str, ...], runs: Path, history: str | None) -> None:
    """Add runs to the history: those that are missing because it could not be reached, or each RUN (an id, its
    beginning, a path, or `last`). One that is there already is replaced."""
    from seatrial.record.history import HistoryError, add_missed, add_run

    past = history_of(runs, history)
    try:
        if not names:
            added = add_missed(runs, past)
            click.echo(f"added {', '.join(added)}" if added else f"no run in {runs} is missing in {past.place}")
            return
        for folder in [find(runs, name) for name in names]:
            if not add_run(folder, past):
                fail(f"{folder.run} has no results that can be read; `seatrial attach {folder.run}` finishes it")
            click.echo(f"added {folder.run}")
    except HistoryError as error:
        _unusable(error)


@command.command()
@click.argument("run")
@click.option("--false-alarm", "label", flag_value="false-alarm", help="The alarm was wrong: the run counts as good.")
@click.option(
    "--regression", "label", flag_value="regression", help="It was right: this run and all later ones are out."
)
@click.option("--fixed", "label", flag_value="fixed", help="From this run on, all is well again.")
@click.option("--clear", "label", flag_value="", help="Take back earlier marks of it.")
@click.option("--reason", metavar="TEXT", default="", help="Why; kept with your name and the time.")
@click.option("--benchmark", metavar="B", help="Only this benchmark; default: those that raised an alarm, else all.")
@RUNS
@HISTORY
def mark(run: str, label: str | None, reason: str, benchmark: str | None, runs: Path, history: str | None) -> None:
    """Record your judgement of the alarms of RUN: its metrics are left out of bounds, or count, accordingly."""
    import getpass
    import time

    from seatrial.record.history import HistoryError

    if label is None:
        fail("say which: --false-alarm, --regression, --fixed or --clear")
    if not reason.strip():
        fail("--reason is missing: whoever reads this in a year will want to know")
    past = history_of(runs, history)
    try:
        found = _run_of(past, run)
        chosen = _meant(past, found.run, benchmark, label)
        for one in chosen or [""]:
            past.mark(found.run, one or None, label, reason, getpass.getuser(), time.time())
    except HistoryError as error:
        _unusable(error)
    what = f"{', '.join(chosen)} of {found.run}" if chosen else f"all of {found.run}"
    click.echo(f"{what}: {label or 'earlier marks are taken back'}")


def _meant(past: "History", run: str, benchmark: str | None, label: str) -> list[str]:
    """The benchmarks that a mark of a run is about; none means all. A mark of alarms is about those that raised one."""
    if benchmark is not None:
        known = past.benchmarks(run)
        if benchmark not in known:
            fail(f"run {run} has no benchmark {benchmark!r}{_nearest(benchmark, known)}")
        return [benchmark]
    if label not in ("false-alarm", "regression"):
        return []
    alarmed = [alarm.benchmark for alarm in past.alarms() if alarm.run == run]
    if not alarmed:
        click.echo(
            f"seatrial: {run} raised no alarm, so this is about all its benchmarks; --benchmark names one", err=True
        )
    return list(dict.fromkeys(alarmed))


@command.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@RUNS
@HISTORY
def alarms(as_json: bool, runs: Path, history: str | None) -> None:
    """List all alarms with what people said of them, and how often they were right."""
    from seatrial.record.history import HistoryError
    from seatrial.report.terminal.history import alarms_lines
    from seatrial.report.view.series import alarm_precision

    try:
        found = history_of(runs, history).alarms()
    except HistoryError as error:
        _unusable(error)
    if as_json:
        print_json({"alarms": found, "precision": _precision(alarm_precision(found))})
    else:
        _print(alarms_lines(found))


def _show_all(past: "History", as_json: bool) -> None:
    from seatrial.report.terminal.history import trials_lines
    from seatrial.report.view.series import alarm_precision

    trials, runs, alarms = past.trials(), past.runs(), past.alarms()
    if as_json:
        print_json(
            {"history": past.place, "trials": trials, "runs": runs, "precision": _precision(alarm_precision(alarms))}
        )
    elif not runs:
        click.echo(f"the history {past.place} is empty: each `seatrial run` adds to it")
    else:
        _print(trials_lines(trials, runs, alarms))


def _show(
    trial: str,
    cells: "list[CellRow]",
    series: "list[Series]",
    others: int,
    alarms: "list[Any]",
    bounds: "Mapping[str, Iterable[Bound]] | None",
    as_json: bool,
) -> None:
    from seatrial.report.terminal.history import MOST_DRAWN, cell_history_lines, history_lines, ranked
    from seatrial.report.terminal.lines import is_ascii
    from seatrial.report.view.series import alarm_precision, group_changes, view_series, with_bound, with_changes

    benchmarks = {one.benchmark for one in series}
    alarms = [alarm for alarm in alarms if alarm.benchmark in benchmarks]
    if bounds is None:
        views = ranked([with_changes(one) for one in series])
        shown = len(views) if as_json else MOST_DRAWN
        views[:shown] = [with_bound(one) for one in views[:shown]]
    else:
        views = ranked([view_series(one, bounds.get(one.benchmark, ())) for one in series])
    if as_json:
        data = {"trial": trial, "cells": cells, "series": views, "together": group_changes(views), "alarms": alarms}
        print_json({**data, "precision": _precision(alarm_precision(alarms))})
    else:
        columns = min(shutil.get_terminal_size((100, 24)).columns, 140)
        lines = [*cell_history_lines(trial, cells, columns), []] if cells else []
        _print([*lines, *history_lines(views, alarms, others, columns, is_ascii(sys.stdout))])


def _chosen(series: "list[Series]", benchmark: str | None, metric: str | None) -> "list[Series]":
    from seatrial.suite.values import glob_matches

    for option, wanted, name in (("benchmark", benchmark, "benchmark"), ("metric", metric, "metric")):
        if wanted is not None:
            known = sorted({getattr(one, name) for one in series})
            fitting = {one for one in known if glob_matches(wanted, one)}
            if not fitting:
                fail(f"there is no {option} {wanted!r} in this trial{_nearest(wanted, known)}")
            series = [one for one in series if getattr(one, name) in fitting]
    return series


def _no_such_trial(past: "History", trial: str) -> NoReturn:
    known = past.trials()
    if not known:
        fail(f"the history {past.place} is empty: each `seatrial run` adds to it")
    fail(f"the history has no trial {trial!r}{_nearest(trial, [one.trial for one in known])}")


def _run_of(past: "History", name: str) -> "SuiteRun":
    """The run of that id, of a beginning that only one has, of the folder that a path leads to, or the last."""
    known = past.runs()
    name = Path(name).name if "/" in name else name
    matching = [one for one in known if one.run == name] or [one for one in known if one.run.startswith(name)]
    if name == "last" and known:
        return known[-1]
    if len(matching) == 1:
        return matching[0]
    if matching:
        fail(f"{name!r} is the beginning of {len(matching)} runs: {', '.join(one.run for one in matching[:5])}")
    fail(f"the history has no run {name!r}{_nearest(name, [one.run for one in known])}")


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.3) or names[:3]
    return f"; did you mean {', '.join(near)}?" if near else ""


def _bounds(suite: Path, runs: Path) -> "dict[str, tuple[Bound, ...]]":
    plan = plan_of(suite, runs)
    return {cell.benchmark: cell.bounds for cell in plan.cells}


def _unusable(error: "HistoryError") -> NoReturn:
    fail(str(error), INFRA)


def _precision(found: Any) -> dict[str, Any]:
    return {
        "alarms": found.alarms,
        "confirmed": found.confirmed,
        "false": found.false,
        "accepted": found.accepted,
        "unjudged": found.unjudged,
        "precision": found.share,
    }


def _print(lines: "list[Line]") -> None:
    from seatrial.report.terminal.lines import is_ascii, paint, wants_colour

    sys.stdout.write(paint(lines, wants_colour(sys.stdout), is_ascii(sys.stdout)))
