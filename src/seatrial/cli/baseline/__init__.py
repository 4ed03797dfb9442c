"""`seatrial baseline`: shows bounds and changes them, each change as a diff and with its reason."""

import time
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seatrial.cli.baseline.import_ import curve, import_bounds, import_runs
from seatrial.cli.baseline.scope import BaselineScope, say
from seatrial.cli.common import HISTORY, RUNS, SELECT, duration, fail, options

if TYPE_CHECKING:
    from seatrial.baseline.edit import Updated
    from seatrial.baseline.selection import MetricHistory, SelectedFile

    Entries = list[tuple[str, Callable[[], Updated]]]

_SUITE = click.argument("suite", type=click.Path(path_type=Path))
_METRIC = click.option("--metric", metavar="NAME", help="Just this metric.")


def _changing(change: Callable[..., None]) -> Callable[..., Any]:
    """The arguments of every command that changes an entry, as a scope."""

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
            fail("--reason is empty: say why, for whoever looks at these bounds later")
        change(BaselineScope(suite, select, runs, history, reason, force, dry_run), **given)

    add = options(
        _SUITE,
        SELECT,
        click.option("--reason", required=True, metavar="TEXT", help="Why; it is kept."),
        click.option("--force", is_flag=True, help="Also bounds that are wider than the cap."),
        click.option("--dry-run", is_flag=True, help="Print the change, and make none."),
        RUNS,
        HISTORY,
    )
    return add(command)


@click.group()
def command() -> None:
    """Bounds that metrics are judged by: show them, make them from the history, move them, widen them.

    The file is what `baseline:` of the suite's trials names: Seatrial's own, or torchprime's step_time_bounds.yaml.
    Only the selected entries are touched; everything else in the file stays as it is written, comments too.
    """


@command.command(short_help="Say what the last run is by its bounds, and where these come from.")
@_SUITE
@SELECT
@_METRIC
@RUNS
@HISTORY
def show(suite: Path, select: tuple[str, ...], metric: str | None, runs: Path, history: str | None) -> None:
    """Say for each entry what the last run is by its bounds, and where the bounds come from."""
    from seatrial.baseline import describe

    scope = BaselineScope(suite, select, runs, history, switched_off=not select)
    for place in scope.places:
        say(place.name if place.exists else f"{place.name} (does not exist yet)")
        shown = describe.describe_baselines(place, scope.history, metric)
        for one in [*shown, *(describe.unused(place, scope.suite) if not select else [])]:
            say(f"  {' '.join((one.benchmark, one.metric)).strip()}: {one.sentence}")
            for detail in one.details:
                say(f"      {detail}")


@command.command(short_help="Make bounds from the runs in the history.")
@_changing
@_METRIC
@click.option("--since", metavar="TIME", help="Only runs of the last so long: 30d, 12h.")
def update(scope: BaselineScope, metric: str | None, since: str | None) -> None:
    """Make bounds from the runs in the history: good ones, of the newest level, of the same configuration.

    Entries without bounds are made; those that have some are brought up to date. Too few runs, or too wide a spread,
    change nothing that is in use.
    """
    from seatrial.baseline import new_bounds, selection

    since_s = time.time() - duration(since) if since else None

    def made(place: "SelectedFile", benchmark: str) -> "Entries":
        return [
            (one.series.metric, partial(new_bounds.update, one, *_known(scope, place, one)))
            for one in selection.newest_histories(scope.history, benchmark, metric, since_s)
            if one.series.metric == "step_time" or place.baselines.form != "torchprime"
            if place.covers(benchmark, one.series.metric)
        ]

    scope.change(made, f"no run of it has {metric or 'a metric that can have bounds'} yet")


@command.command(short_help="Move bounds to the newest level; their width stays.")
@_changing
@_METRIC
def recenter(scope: BaselineScope, metric: str | None) -> None:
    """Move bounds to the level of the newest runs; their width stays. That level is in order from then on.

    The newest level is that of the last runs which are out of the bounds on one side; when the last run is inside, of
    the runs since the last change. Older runs count no more for `seatrial baseline update`.
    """
    from seatrial.baseline import new_bounds, selection

    def made(place: "SelectedFile", benchmark: str) -> "Entries":
        found = {one.series.metric: one for one in selection.newest_histories(scope.history, benchmark, metric)}
        return [
            (name, partial(new_bounds.recenter, found[name], *_known(scope, place, found[name])))
            for name in place.baselines.entries.get(benchmark, {})
            if name in found
        ]

    scope.change(made, "it has no entry, or no run")


def _known(scope: BaselineScope, place: "SelectedFile", chosen: "MetricHistory") -> tuple[Any, ...]:
    """What new bounds depend on beside the runs: the entry, the reason, the hardware and the form of the file."""
    from seatrial.baseline.describe import hardware_of

    entry = place.entry(chosen.series.benchmark, chosen.series.metric)
    return entry, scope.why, hardware_of(scope.runs, chosen.points), place.baselines.form


@command.command(short_help="Make bounds wider, and keep them so.")
@_changing
@_METRIC
@click.option("--by", metavar="PERCENT", help="So much wider than they are: 20%.")
@click.option("--to", metavar="PERCENT", help="So much of the center to each side: 3%.")
def widen(scope: BaselineScope, metric: str | None, by: str | None, to: str | None) -> None:
    """Make bounds wider, and keep them so: the width becomes the floor of the entry."""
    from seatrial.baseline import adjust

    if (by is None) == (to is None):
        fail("say how much wider: exactly one of --by 20% and --to 3%")
    by_share, to_share = (None if text is None else _percent(text) for text in (by, to))

    def made(place: "SelectedFile", benchmark: str) -> "Entries":
        return [
            (name, partial(adjust.widen, entry, scope.why, by_share, to_share))
            for name, entry in place.baselines.entries.get(benchmark, {}).items()
            if metric is None or name == metric
        ]

    scope.change(made, "it has no entry")


def _percent(text: str) -> float:
    """`20%` or `20`: 0.2."""
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 < share < 100:
        fail(f"{text!r} is no percentage; write 3% or 20%")
    return share


@command.command("import", short_help="Take over bounds or runs that another tool kept.")
@_changing
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--metric", metavar="NAME", help="Of runs: what their values are metrics of.")
@click.option("--unit", metavar="TEXT", default="", help="Of runs: s, MiB; default: that of the suite.")
@click.option("--better", type=click.Choice(["lower", "higher"]), help="Of runs; default: as the suite says.")
def import_(scope: BaselineScope, file: Path, metric: str | None, unit: str, better: str | None) -> None:
    """Take over what another tool kept in FILE.

    \b
    bounds   torchprime's step_time_bounds.yaml, or a baseline of Seatrial: into the suite's own baseline
    runs     CSV, JSON or YAML, a row with `run`, `time` and `value` each: into the history, for `update`
    """
    from seatrial.baseline.read import is_bounds

    if is_bounds(file):
        import_bounds(scope, file)
    else:
        import_runs(scope, file, metric, unit, better)


command.add_command(curve)
