"""`seatrial history`: past results: verdicts, metrics with bounds and level changes, alerts and their reviews."""

import difflib
import getpass
import shutil
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from seatrial.api import RunPlan, find
from seatrial.cli.common import (
    HISTORY,
    RUN,
    RUNS,
    complete_run,
    completed,
    duration,
    fail,
    history_of,
    plan_of,
    print_json,
    print_lines,
    say,
)
from seatrial.record.folder import named_run
from seatrial.record.history import Alarm, History, Series, TimeWindow, add_missed, add_run
from seatrial.report.terminal import history as terminal
from seatrial.report.terminal.lines import is_ascii
from seatrial.report.view import series as view
from seatrial.report.view.sentences import period_text

MOST_READ = 500  # series shown on a terminal
OLD_NAMES = {"alarms": "alerts"}  # hidden aliases


class WithDefault(click.Group):
    """A group that passes arguments which do not start with a command to its first command."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        args = [OLD_NAMES.get(arg, arg) for arg in args[:1]] + args[1:]
        known = {*self.commands, *context.help_option_names}
        default = next(iter(self.commands))
        return super().parse_args(context, args if args and args[0] in known else [default, *args])

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        next(iter(self.commands.values())).format_options(context, formatter)
        self.format_commands(context, formatter)

    def collect_usage_pieces(self, context: click.Context) -> list[str]:
        return ["[OPTIONS] [TRIAL]", "| COMMAND [ARGS]..."]


@click.group(cls=WithDefault)
def command() -> None:
    """Show the verdicts of TRIAL's cells in past runs, and plot its metrics with bounds, level changes and alerts.
    Without TRIAL, list all trials.

    \b
    seatrial history TRIAL --metric M --since 30d            one metric in the last 30 days
    seatrial history mark RUN --false-alarm --reason TEXT    review an alert
    seatrial history show mark                               a trial with the name of a command
    """


def _trials(context: click.Context) -> list[str]:
    past = history_of(context.params.get("runs") or Path("runs"), context.params.get("history"))
    return [one.trial for one in past.trials()]


@command.command()
@click.argument("trial", required=False, shell_complete=completed(_trials))
@click.option("--benchmark", metavar="B", help="Only benchmarks with this name or glob.")
@click.option("--metric", metavar="M", help="Only metrics with this name or glob.")
@click.option(
    "--last", metavar="N", type=click.IntRange(min=1), help="Only the last N points of each series.  [default: 400]"
)
@click.option(
    "--since", metavar="TIME", help="Only runs since this time: 2026-10-03, 2026-10-03T12:00 or 30d (30 days ago)."
)
@click.option(
    "--until", metavar="TIME", help="Only runs until this time, written as for --since. A day counts to its end."
)
@click.option("--suite", type=click.Path(path_type=Path), help="Also show the bounds in this suite's baselines.")
@click.option("--all", "all_metrics", is_flag=True, help="Also show metrics that are not checked.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
    """Show TRIAL's cells and plot its metrics over past runs. Without TRIAL, list all trials."""
    past = history_of(runs, history)
    window = TimeWindow(_time(since, "--since"), _time(until, "--until", ends=True))
    if trial is None:
        if benchmark or metric or since or until:
            fail("--benchmark, --metric, --since and --until need a TRIAL: `seatrial history TRIAL --metric M`")
        _show_all(past, as_json)
        return
    cells = past.cells(trial, terminal.RUNS_SHOWN)
    if not cells:
        known = past.trials()
        if not known:
            fail(f"the history {past.location} is empty; `seatrial run` adds results to it")
        fail(f"trial not found: {trial!r}{_nearest(trial, [one.trial for one in known])}")
    chosen = _chosen(past.names(trial), benchmark, metric)
    judged = chosen if all_metrics or metric else [one for one in chosen if one.better]
    read = judged if as_json else judged[:MOST_READ]
    series = past.filled(read, last or view.POINTS_SHOWN, window)
    benchmarks = {one.benchmark for one in series}
    alarms = [alarm for alarm in past.alarms() if alarm.benchmark in benchmarks]
    if len(read) < len(judged):
        say(f"showing the first {len(read)} of {len(judged)} series; use --benchmark or --metric to choose others")
    views = _views(series, plan_of(suite, runs) if suite else None, as_json)
    cells = [cell for cell in cells if window.has(cell.at_s) and not (benchmark or metric)]
    if as_json:
        found = {"trial": trial, "cells": cells, "series": views, "together": view.group_changes(views)}
        print_json({**found, **_judged(alarms)})
        return

    if not (cells or views) and (since or until):
        row = next(one for one in past.trials() if one.trial == trial)
        say(f"nothing to show for this period; the runs of {trial} are from {period_text(row.first_s, row.last_s)}")
        return
    columns = min(shutil.get_terminal_size((100, 24)).columns, 140)
    lines = [*terminal.cell_history_lines(trial, cells, columns), []] if cells else []
    others = len(chosen) - len(judged)
    print_lines([*lines, *terminal.history_lines(views, alarms, others, columns, is_ascii(sys.stdout))])


def _time(text: str | None, option: str, ends: bool = False) -> float | None:
    """Parses a time, a day (its start, or its end with `ends`) or a duration before now."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        if not text[:1].isdigit() or "-" in text:
            fail(f"invalid {option} {text!r}; use 2026-10-03, 2026-10-03T12:00 or 30d")
        return time.time() - duration(text.removesuffix(" ago"))
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return found.timestamp() + (86_400 - 1e-6 if ends and len(text) == len("2026-10-03") else 0.0)


@command.command(short_help="Add runs that are missing from the history.")
@click.argument("names", metavar="[RUN]...", nargs=-1, shell_complete=complete_run)
@RUNS
@HISTORY
def add(names: tuple[str, ...], runs: Path, history: str | None) -> None:
    """Add each RUN (an id or prefix, a path, or `last`) to the history, replacing its existing entries. Without RUN,
    add the runs that are missing because the history was unreachable."""
    past = history_of(runs, history)
    if not names:
        added = add_missed(runs, past)
        click.echo(f"added {', '.join(added)}" if added else f"nothing to add: {past.location} has every run in {runs}")
    for folder in [find(runs, name) for name in names]:
        if not add_run(folder, past):
            fail(f"{folder.run} has no readable results; finish it with `seatrial attach {folder.run}`")
        click.echo(f"added {folder.run}")


@command.command()
@RUN
@click.option("--false-alarm", "label", flag_value="false-alarm", help="A false alarm: the run counts as good.")
@click.option(
    "--regression", "label", flag_value="regression",
    help="A real regression: this run and later ones are not used for bounds.",
)  # fmt: skip
@click.option("--accepted", "label", flag_value="accepted", help="The new level is accepted: it counts as good.")
@click.option("--fixed", "label", flag_value="fixed", help="Fixed: this run and later ones count as good again.")
@click.option("--clear", "label", flag_value="", help="Remove earlier marks of this run.")
@click.option("--reason", metavar="TEXT", default="", help="The reason; stored with your name and the time.")
@click.option("--benchmark", metavar="B", help="Only this benchmark.  [default: those with an alert, else all]")
@RUNS
@HISTORY
def mark(run: str, label: str | None, reason: str, benchmark: str | None, runs: Path, history: str | None) -> None:
    """Review the alerts of RUN. The mark decides whether the run's metrics are used to compute bounds."""
    if label is None:
        fail("set one of --false-alarm, --regression, --accepted, --fixed, --clear")
    if not reason.strip():
        fail("--reason is required")
    past = history_of(runs, history)
    name = Path(run).name if "/" in run else run
    run = named_run(name, [one.run for one in past.runs()], "the history")
    chosen = _marked(past, run, benchmark, label)
    for one in chosen or [""]:
        past.mark(run, one or None, label, reason, getpass.getuser(), time.time())
    what = f"{', '.join(chosen)} of {run}" if chosen else f"all of {run}"
    click.echo(f"{what}: {label or 'earlier marks removed'}")


def _marked(past: History, run: str, benchmark: str | None, label: str) -> list[str]:
    """Returns the benchmarks to mark; empty means all. Reviews of alerts apply to benchmarks with an alert."""
    if benchmark is not None:
        known = past.benchmarks(run)
        if benchmark not in known:
            fail(f"benchmark not found in run {run}: {benchmark!r}{_nearest(benchmark, known)}")
        return [benchmark]
    if label not in ("false-alarm", "regression", "accepted"):
        return []
    alarmed = [alarm.benchmark for alarm in past.alarms() if alarm.run == run]
    if not alarmed:
        say(f"{run} has no alerts, so this marks all its benchmarks; use --benchmark to mark one")
    return list(dict.fromkeys(alarmed))


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@RUNS
@HISTORY
def alerts(as_json: bool, runs: Path, history: str | None) -> None:
    """List all alerts with their reviews, and how many were correct."""
    found = history_of(runs, history).alarms()
    print_json(_judged(found)) if as_json else print_lines(terminal.alarms_lines(found))


def _judged(alarms: list[Alarm]) -> dict[str, object]:
    """The alerts and their precision, for --json."""
    found = view.alarm_precision(alarms)
    precision = {**msgspec.structs.asdict(found), "unjudged": found.unjudged, "precision": found.share}
    return {"alarms": alarms, "precision": precision}


def _show_all(past: History, as_json: bool) -> None:
    trials, runs, alarms = past.trials(), past.runs(), past.alarms()
    if as_json:
        found = {"history": past.location, "trials": trials, "runs": runs}
        print_json({**found, "precision": _judged(alarms)["precision"]})
    elif not runs:
        click.echo(f"the history {past.location} is empty; `seatrial run` adds results to it")
    else:
        print_lines(terminal.trials_lines(trials, runs, alarms))


def _views(series: list[Series], suite: RunPlan | None, as_json: bool) -> list[view.SeriesView]:
    """Uses the suite's bounds if given, else computes them from the runs, which is slow: only for shown series."""
    if suite is not None:
        bounds = {cell.benchmark: cell.bounds for cell in suite.cells}
        return terminal.ranked([view.view_series(one, bounds.get(one.benchmark, ())) for one in series])
    views = terminal.ranked([view.with_changes(one) for one in series])
    shown = len(views) if as_json else terminal.MOST_DRAWN
    quick = terminal.LEAST_DRAWN  # series of few runs take no time
    return [view.with_bound(one) if at < shown or len(one.points) < quick else one for at, one in enumerate(views)]


def _chosen(series: list[Series], benchmark: str | None, metric: str | None) -> list[Series]:
    from seatrial.suite.values import glob_matches

    for name, wanted in (("benchmark", benchmark), ("metric", metric)):
        if wanted is not None:
            known = sorted({getattr(one, name) for one in series})
            fitting = {one for one in known if glob_matches(wanted, one)}
            if not fitting:
                fail(f"{name} not found in this trial: {wanted!r}{_nearest(wanted, known)}")
            series = [one for one in series if getattr(one, name) in fitting]
    return series


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.3) or names[:3]
    return f"; did you mean {', '.join(near)}?" if near else ""
