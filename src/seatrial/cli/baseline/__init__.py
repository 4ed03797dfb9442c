"""`seatrial baseline`: shows bounds and changes them, each change as a diff and with its reason."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seatrial.cli.baseline.import_ import command as import_
from seatrial.cli.baseline.import_ import curve
from seatrial.cli.baseline.scope import METRIC, SELECT, SUITE, BaselineScope, reason_of, say
from seatrial.cli.common import HISTORY, RUNS, duration, fail

if TYPE_CHECKING:
    from seatrial.baseline.edit import Updated, Why
    from seatrial.baseline.selection import SelectedFile

_CHANGING = [
    SUITE,
    SELECT,
    click.option("--reason", required=True, metavar="TEXT", help="Why; it is kept in the entry."),
    click.option("--force", is_flag=True, help="Also bounds that are wider than the cap."),
    click.option("--dry-run", is_flag=True, help="Print the change, and make none."),
    RUNS,
    HISTORY,
]


@dataclass(frozen=True)
class _Asked:
    """What every command that changes an entry is asked for."""

    scope: BaselineScope
    why: "Why"
    dry_run: bool
    runs: Path

    def known(self, place: "SelectedFile", chosen: Any) -> tuple[Any, ...]:
        from seatrial.baseline.describe import hardware_of

        last = chosen.points[-1] if chosen.points else None
        hardware = hardware_of(self.runs, last.run, last.id) if last else ""
        return place.entry(chosen.series.benchmark, chosen.series.metric), self.why, hardware, place.baselines.form


def _changing(change: Callable[..., None]) -> Callable[..., Any]:
    """The options of every command that changes an entry."""

    @wraps(change)
    def command(
        suite: Path,
        select: tuple[str, ...],
        reason: str,
        force: bool,
        dry_run: bool,
        runs: Path,
        history: str | None,
        **options: Any,
    ) -> None:
        scope = BaselineScope(suite, select, runs, history)
        change(_Asked(scope, reason_of(reason, force), dry_run, runs), **options)

    return reduce(lambda wrapped, option: option(wrapped), reversed(_CHANGING), command)


@click.group()
def command() -> None:
    """Bounds that metrics are judged by: show them, make them from the history, move them, widen them.

    The file is what `baseline:` of the suite's trials names: Seatrial's own, or torchprime's step_time_bounds.yaml.
    Only the selected entries are touched; everything else in the file stays as it is written, comments too.
    """


@command.command(short_help="Say what the last run is by its bounds, and where these come from.")
@SUITE
@SELECT
@METRIC
@RUNS
@HISTORY
def show(suite: Path, select: tuple[str, ...], metric: str | None, runs: Path, history: str | None) -> None:
    """Say for each entry what the last run is by its bounds, and where the bounds come from."""
    from seatrial.baseline import describe

    scope = BaselineScope(suite, select, runs, history, switched_off=not select)
    for place in scope.places:
        say(place.name if place.exists else f"{place.name} (does not exist yet)")
        for one in scope.safely(partial(describe.describe_baselines, place, scope.history, metric)):
            say(f"  {' '.join((one.benchmark, one.metric)).strip()}: {one.sentence}")
            for detail in one.details:
                say(f"      {detail}")
        for one in describe.unused(place, scope.suite) if not select else []:
            say(f"  {one.benchmark} {one.metric}: {one.sentence}")


@command.command(short_help="Make bounds from the runs in the history.")
@_changing
@METRIC
@click.option("--since", metavar="TIME", help="Only runs of the last so long: 30d, 12h.")
def update(asked: _Asked, metric: str | None, since: str | None) -> None:
    """Make bounds from the runs in the history: good ones, of the newest level, of the same configuration.

    Entries without bounds are made; those that have some are brought up to date. Too few runs, or too wide a spread,
    change nothing that is in use.
    """
    from seatrial.baseline import new_bounds, selection

    since_s = time.time() - duration(since) if since else None

    def made(place: "SelectedFile", benchmark: str) -> "list[tuple[str, Callable[[], Updated]]]":
        found = selection.newest_histories(asked.scope.history, benchmark, metric, since_s)
        names = ["step_time"] if place.baselines.form == "torchprime" else [one.series.metric for one in found]
        return [
            (one.series.metric, partial(new_bounds.update, one, *asked.known(place, one)))
            for one in found
            if one.series.metric in names and place.covers(benchmark, one.series.metric)
        ]

    asked.scope.change(made, asked.dry_run, f"no run of it has {metric or 'a metric that can have bounds'} yet")


@command.command(short_help="Move bounds to the newest level; their width stays.")
@_changing
@METRIC
def recenter(asked: _Asked, metric: str | None) -> None:
    """Move bounds to the level of the newest runs; their width stays. That level is in order from then on.

    The newest level is that of the last runs which are out of the bounds on one side; when the last run is inside, of
    the runs since the last change. Older runs count no more for `seatrial baseline update`.
    """
    from seatrial.baseline import new_bounds, selection

    def made(place: "SelectedFile", benchmark: str) -> "list[tuple[str, Callable[[], Updated]]]":
        found = {one.series.metric: one for one in selection.newest_histories(asked.scope.history, benchmark, metric)}
        return [
            (name, partial(new_bounds.recenter, found[name], *asked.known(place, found[name])))
            for name in place.baselines.entries.get(benchmark, {})
            if name in found
        ]

    asked.scope.change(made, asked.dry_run, "it has no entry, or no run")


@command.command(short_help="Make bounds wider, and keep them so.")
@_changing
@METRIC
@click.option("--by", metavar="PERCENT", help="So much wider than they are: 20%.")
@click.option("--to", metavar="PERCENT", help="So much of the center to each side: 3%.")
def widen(asked: _Asked, metric: str | None, by: str | None, to: str | None) -> None:
    """Make bounds wider, and keep them so: the width becomes the floor of the entry."""
    from seatrial.baseline import adjust

    if (by is None) == (to is None):
        fail("say how much wider: exactly one of --by 20% and --to 3%")
    by_share, to_share = (None if text is None else _percent(text) for text in (by, to))

    def made(place: "SelectedFile", benchmark: str) -> "list[tuple[str, Callable[[], Updated]]]":
        return [
            (name, partial(adjust.widen, entry, asked.why, by_share, to_share))
            for name, entry in place.baselines.entries.get(benchmark, {}).items()
            if metric is None or name == metric
        ]

    asked.scope.change(made, asked.dry_run, "it has no entry")


command.add_command(import_)
command.add_command(curve)


def _percent(text: str) -> float:
    """`20%` or `20`: 0.2."""
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 < share < 100:
        fail(f"{text!r} is no percentage; write 3% or 20%")
    return share
