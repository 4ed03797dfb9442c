"""`seatrial baseline import`: takes over bounds or runs that another tool kept."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.api import find
from seatrial.cli.baseline.scope import SELECT, SUITE, BaselineScope, reason_of, say
from seatrial.cli.common import HISTORY, RUN, RUNS, cells_of, fail

if TYPE_CHECKING:
    from seatrial.baseline import Baselines
    from seatrial.baseline.edit import Why
    from seatrial.baseline.past_runs import PastRun, PastRuns


@click.command("import", short_help="Take over bounds or runs that another tool kept.")
@SUITE
@click.argument("file", type=click.Path(path_type=Path))
@SELECT
@click.option("--reason", required=True, metavar="TEXT", help="Why; it is kept.")
@click.option("--metric", metavar="NAME", help="Of runs: what their values are metrics of.")
@click.option("--unit", metavar="TEXT", default="", help="Of runs: s, MiB; default: that of the suite.")
@click.option("--better", type=click.Choice(["lower", "higher"]), help="Of runs; default: as the suite says.")
@click.option("--force", is_flag=True, help="Also bounds that are wider than the cap.")
@click.option("--dry-run", is_flag=True, help="Print the change, and make none.")
@RUNS
@HISTORY
def command(
    suite: Path,
    file: Path,
    select: tuple[str, ...],
    reason: str,
    metric: str | None,
    unit: str,
    better: str | None,
    force: bool,
    dry_run: bool,
    runs: Path,
    history: str | None,
) -> None:
    """Take over what another tool kept in FILE.

    \b
    bounds   torchprime's step_time_bounds.yaml, or a baseline of Seatrial: into the suite's own baseline
    runs     CSV, JSON or YAML, a row with `run`, `time` and `value` each: into the history, for `update`
    """
    from seatrial.baseline import past_runs, read_baselines
    from seatrial.baseline.read import is_bounds
    from seatrial.suite import SuiteError

    scope = BaselineScope(suite, select, runs, history)
    why = reason_of(reason, force)
    try:
        if is_bounds(file):
            taken = read_baselines(file)
            _import_bounds(scope, taken, file, why, dry_run)
        else:
            _import_runs(scope, past_runs.read_runs(file), file, why, dry_run, (metric, unit, better))
    except SuiteError as error:
        fail(str(error))


def _import_bounds(scope: BaselineScope, taken: "Baselines", file: Path, why: "Why", dry_run: bool) -> None:
    from seatrial.baseline import imported

    for warning in taken.warnings:
        say(warning, err=True)
    refused, done = [], 0
    for place in scope.places:
        if place.exists and place.path.resolve() == file.resolve():
            fail(f"{file} is what the suite judges by already; there is nothing to import")
        updates, no = imported.import_bounds(place, taken, file.name, why, scope.suite.trials)
        refused += no
        done += len(updates)
        scope.write(place, updates, dry_run)
    known = {benchmark for place in scope.places for benchmark in place.benchmarks}
    others = [benchmark for benchmark in taken.entries if benchmark not in known]
    if others:
        say(f"of no selected cell, and not imported: {', '.join(others)}", err=True)
    for line in refused:
        say(f"refused: {line}", err=True)
    if refused or not done:
        fail("nothing was imported: no benchmark of the file is one of the suite's" if not done else "not all", 1)


def _import_runs(
    scope: BaselineScope,
    found: "PastRuns",
    file: Path,
    why: "Why",
    dry_run: bool,
    acceptance: tuple[str | None, str, str | None],
) -> None:
    from seatrial.baseline import imported, past_runs
    from seatrial.baseline.edit import Refused
    from seatrial.checks.bounds import short_date

    groups: dict[tuple[str, str], list[PastRun]] = {}
    try:
        for one in past_runs.assign_benchmarks(found.runs, scope.benchmarks):
            groups.setdefault((one.benchmark, one.metric), []).append(one)
    except Refused as error:
        fail(str(error))
    series = [
        scope.imported(
            benchmark,
            acceptance[0] or metric or None,
            acceptance[1] or group[0].unit,
            acceptance[2] or group[0].better or None,
        )
        for (benchmark, metric), group in groups.items()
    ]
    if found.without_value:
        rows = f"{len(found.without_value)} row{'' if len(found.without_value) == 1 else 's'}"
        say(f"{rows} without a value left out, the first at {found.without_value[0]}", err=True)
    for row, group in zip(series, groups.values(), strict=True):
        fingerprint = scope.safely(partial(imported.newest_fingerprint, scope.history, row.benchmark))
        if not dry_run:
            scope.safely(partial(imported.import_runs, scope.history, group, row, fingerprint, why, file.name))
        count = f"{len(group)} run{'' if len(group) == 1 else 's'}"
        summary = f"{count} of {row.metric} from {short_date(group[0].at_s)} to {short_date(group[-1].at_s)}"
        say(f"{row.benchmark}: {'would add' if dry_run else 'added'} {summary} to {scope.history.place}")
        if not fingerprint:
            say(
                "  nothing ran here yet, so it is not known whether that was under the same conditions. "
                "Bounds made from them judge the first runs here, but are never mixed with them; if it was the same, "
                "run the suite once and import them again"
            )


# `seatrial baseline curve`: saves the losses of a run, for `loss: {curve: FILE}` of its trial.


@click.command("curve", short_help="Save the losses of a run as the curve that others are compared with.")
@RUN
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--cell", metavar="CELL", help="Whose losses: an id, a glob, axis=value or /hash.")
@click.option("--host", type=click.IntRange(min=0), help="Of several hosts, whose; default: the first that told any.")
@click.option("--force", is_flag=True, help="Also over a file that is there, and from a cell that did not pass.")
@RUNS
def curve(run: str, file: Path, cell: str | None, host: int | None, force: bool, runs: Path) -> None:
    """Save the losses that the log of RUN told (an id, its beginning, a path, or `last`) in FILE, by their steps.

    `loss: {curve: FILE}` of a training trial compares later runs with it.
    """
    from seatrial.job import Unreadable
    from seatrial.kinds.training.curve import CurveError, curve_of, curve_text
    from seatrial.record import write_whole

    folder = find(runs, run)
    results = folder.read_results()
    if results is None:
        fail(f"{folder.run} is not finished; `seatrial attach {folder.run}` finishes it")
    wanted = {one.hash for one in cells_of(folder, cell)}
    tried = [one for one in results.cells if one.hash in wanted and one.attempts]
    if len(tried) != 1:
        names = "".join(f"\n  --cell '{one.id}'" for one in tried[:20])
        fail(f"{len(tried)} cells of {folder.run} are meant; say which one:{names}" if tried else "no such cell ran")
    (found,) = tried
    if not found.verdict.good and not force:
        fail(f"{found.id} is {found.verdict}: {found.why}; --force saves its losses all the same", 1)
    if file.exists() and not force:
        fail(f"{file} is there already; --force replaces it", 1)
    last = found.attempts[-1]
    try:
        curve = curve_of(folder.read_observation(found.hash, last.number, next(iter(last.parts), "job")), host)
        write_whole(file, curve_text(curve).encode())
    except (CurveError, Unreadable) as error:
        fail(f"{found.id}: {error}", 1)
    except OSError as error:
        fail(f"{file} cannot be written: {error.strerror}")
    click.echo(f"saved {len(curve)} losses of {found.id}, steps {min(curve)} to {max(curve)}, in {file}")
