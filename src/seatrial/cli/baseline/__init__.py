"""`seatrial baseline`: shows and changes the bounds of metrics."""

import time
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from seatrial.baseline import adjust, describe, new_bounds
from seatrial.baseline.read import is_bounds
from seatrial.baseline.selection import MetricHistory, SelectedFile, newest_histories
from seatrial.cli import CommandGroup
from seatrial.cli.baseline.import_ import curve, import_bounds, import_runs
from seatrial.cli.baseline.scope import BaselineScope, Entries, say
from seatrial.cli.common import HISTORY, RUNS, SELECT, duration, fail, options

_SUITE = click.argument("suite", type=click.Path(path_type=Path))
_METRIC = click.option("--metric", metavar="NAME", help="Only this metric.")


def _changing(change: Callable[..., None]) -> Callable[..., Any]:
    """Adds the options of all commands that change entries, and passes them as a BaselineScope."""

    @wraps(change)
    def command(
        suite: Path,
        select: tuple[str, ...],
        reason: str,
        force: bool,
        dry_run: bool,
        runs: Path,
        history: str | None,
        **given: Any,
    ) -> None:
        reason = " ".join(reason.encode("utf-8", "replace").decode().split())
        if not reason:
            fail("--reason is empty")
        change(BaselineScope(suite, select, runs, history, reason, force, dry_run), **given)

    add = options(
        _SUITE,
        SELECT,
        click.option("--reason", required=True, metavar="TEXT", help="Reason for the change; stored in the file."),
        click.option("--force", is_flag=True, help="Allow bounds wider than the cap."),
        click.option("--dry-run", is_flag=True, help="Show the change without writing it."),
        RUNS,
        HISTORY,
    )
    return add(command)


@click.group(cls=CommandGroup)
def command() -> None:
    """Show and change the bounds that metrics are checked against.

    The file is the `baseline` of the suite's trials: Seatrial's own format, or torchprime's step_time_bounds.yaml. Only
    the selected entries change; the rest of the file, including comments, is kept.
    """


@command.command(short_help="Show bounds, their origin, and how the last run compares.")
@_SUITE
@SELECT
@_METRIC
@RUNS
@HISTORY
def show(suite: Path, select: tuple[str, ...], metric: str | None, runs: Path, history: str | None) -> None:
    """Show each entry's bounds, where they come from, and how the last run compares with them."""
    scope = BaselineScope(suite, select, runs, history, switched_off=not select)
    for file in scope.files:
        say(file.name if file.exists else f"{file.name} (does not exist yet)")
        shown = describe.describe_baselines(file, scope.history, metric)
        for one in [*shown, *(describe.unused(file, scope.suite) if not select else [])]:
            say(f"  {' '.join((one.benchmark, one.metric)).strip()}: {one.sentence}")
            for detail in one.details:
                say(f"      {detail}")


@command.command(short_help="Compute bounds from the runs in the history.")
@_changing
@_METRIC
@click.option("--since", metavar="TIME", help="Ignore runs older than this, such as 30d or 12h.")
def update(scope: BaselineScope, metric: str | None, since: str | None) -> None:
    """Compute bounds from the good runs in the history with the newest level and the same configuration.

    Creates missing entries and updates existing ones. With too few runs or too much noise, existing bounds are kept.
    """
    since_s = time.time() - duration(since) if since else None

    def made(file: SelectedFile, benchmark: str) -> Entries:
        return [
            (one.series.metric, partial(new_bounds.update, one, *_known(scope, file, one)))
            for one in newest_histories(scope.history, benchmark, metric, since_s)
            if one.series.metric == "step_time" or file.baselines.form != "torchprime"
            if file.covers(benchmark, one.series.metric)
        ]

    scope.change(made, f"no run has {metric or 'a metric that can have bounds'} yet")


@command.command(short_help="Accept the level of the newest runs as the new center of bounds.")
@_changing
@_METRIC
def recenter(scope: BaselineScope, metric: str | None) -> None:
    """Accept the level of the newest runs: center the bounds on it, with the same width.

    Uses the latest runs in a row that are above or below the bounds. If the last run is within bounds, uses the runs
    since the last level change. `seatrial baseline update` then ignores older runs.

    \b
    seatrial baseline recenter SUITE --metric step_time --reason "new driver" --dry-run
    """

    def made(file: SelectedFile, benchmark: str) -> Entries:
        found = {one.series.metric: one for one in newest_histories(scope.history, benchmark, metric)}
        return [
            (name, partial(new_bounds.recenter, found[name], *_known(scope, file, found[name])))
            for name in file.baselines.entries.get(benchmark, {})
            if name in found
        ]

    scope.change(made, "no entry, or no run in the history")


def _known(scope: BaselineScope, file: SelectedFile, chosen: MetricHistory) -> tuple[Any, ...]:
    """The entry, reason, hardware and file format that new bounds depend on besides the runs."""
    entry = file.entry(chosen.series.benchmark, chosen.series.metric)
    return entry, scope.why, describe.hardware_of(scope.runs, chosen.points), file.baselines.form


@command.command(short_help="Widen bounds permanently.")
@_changing
@_METRIC
@click.option("--by", metavar="PERCENT", help="Widen by this share of the current width: 20%.")
@click.option("--to", metavar="PERCENT", help="Set the half-width to this share of the center: 3%.")
def widen(scope: BaselineScope, metric: str | None, by: str | None, to: str | None) -> None:
    """Widen bounds. The new width becomes the entry's minimum, so later updates keep it."""
    if (by is None) == (to is None):
        fail("set exactly one of --by, --to; for example --by 20% or --to 3%")
    by_share, to_share = (None if text is None else _percent(text) for text in (by, to))

    def made(file: SelectedFile, benchmark: str) -> Entries:
        return [
            (name, partial(adjust.widen, entry, scope.why, by_share, to_share))
            for name, entry in file.baselines.entries.get(benchmark, {}).items()
            if metric is None or name == metric
        ]

    scope.change(made, "no entry")


def _percent(text: str) -> float:
    """Parses `20%` or `20` as 0.2."""
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 < share < 100:
        fail(f"invalid percentage {text!r}; use 3% or 20%")
    return share


@command.command("import", short_help="Import bounds or runs from another tool.")
@_changing
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--metric", metavar="NAME", help="Metric measured by the runs (runs only).")
@click.option("--unit", metavar="TEXT", default="", help="Unit: s, MiB (runs only).  [default: from the suite]")
@click.option(
    "--better", type=click.Choice(["lower", "higher"]), help="Better values (runs only).  [default: from the suite]"
)
def import_(scope: BaselineScope, file: Path, metric: str | None, unit: str, better: str | None) -> None:
    """Import bounds or runs from FILE.

    \b
    bounds   torchprime's step_time_bounds.yaml or a Seatrial baseline; added to the suite's baseline
    runs     CSV, JSON or YAML rows with `run`, `time` and `value`; added to the history, for `update`
    """
    if is_bounds(file):
        import_bounds(scope, file)
    else:
        import_runs(scope, file, metric, unit, better)


command.add_command(curve)
