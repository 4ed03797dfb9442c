"""What `seatrial baseline import` takes over of another tool, and `seatrial baseline curve` of a run."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.api import find
from seatrial.cli.baseline.scope import BaselineScope, say
from seatrial.cli.common import RUN, RUNS, cells_of, fail
from seatrial.record import write_whole

if TYPE_CHECKING:
    from seatrial.baseline.imported import ImportedMetric
    from seatrial.baseline.past_runs import PastRun


def import_bounds(scope: BaselineScope, file: Path) -> None:
    from seatrial.baseline import imported, read_baselines

    taken = read_baselines(file)
    for warning in taken.warnings:
        say(warning, err=True)
    refused, done = [], 0
    for place in scope.places:
        if place.exists and place.path.resolve() == file.resolve():
            fail(f"{file} is what the suite judges by already; there is nothing to import")
        updates, no = imported.import_bounds(place, taken, file.name, scope.why, scope.suite.trials)
        refused += no
        done += len(updates)
        scope.write(place, updates)
    known = {benchmark for place in scope.places for benchmark in place.trials}
    others = [benchmark for benchmark in taken.entries if benchmark not in known]
    if others:
        say(f"of no selected cell, and not imported: {', '.join(others)}", err=True)
    for line in refused:
        say(f"refused: {line}", err=True)
    if refused or not done:
        fail("nothing was imported: no benchmark of the file is one of the suite's" if not done else "not all", 1)


def import_runs(scope: BaselineScope, file: Path, metric: str | None, unit: str, better: str | None) -> None:
    """What an option says counts before what the rows say."""
    from seatrial.baseline import imported, past_runs
    from seatrial.checks.bounds import short_date

    found = past_runs.read_runs(file)
    trials = {name: trial for place in scope.places for name, trial in place.trials.items()}
    groups: dict[tuple[str, str], list[PastRun]] = {}
    for one in past_runs.assign_benchmarks(found.runs, trials):
        groups.setdefault((one.benchmark, one.metric), []).append(one)
    # Nothing is added before it is known of all groups what they are metrics of.
    series = [
        _metric(scope, trials, benchmark, metric or named, unit or runs[0].unit, better or runs[0].better or None)
        for (benchmark, named), runs in groups.items()
    ]
    if found.without_value:
        rows = f"{len(found.without_value)} row{'' if len(found.without_value) == 1 else 's'}"
        say(f"{rows} without a value left out, the first at {found.without_value[0]}", err=True)
    for row, runs in zip(series, groups.values(), strict=True):
        fingerprint = imported.newest_fingerprint(scope.history, row.benchmark)
        if not scope.dry_run:
            scope.history.add(*imported.past_results(runs, row, fingerprint, scope.why, file.name))
        count = f"{len(runs)} run{'' if len(runs) == 1 else 's'}"
        summary = f"{count} of {row.metric} from {short_date(runs[0].at_s)} to {short_date(runs[-1].at_s)}"
        say(f"{row.benchmark}: {'would add' if scope.dry_run else 'added'} {summary} to {scope.history.place}")
        if not fingerprint:
            say(
                "  nothing ran here yet, so it is not known whether that was under the same conditions. "
                "Bounds made from them judge the first runs here, but are never mixed with them; if it was the same, "
                "run the suite once and import them again"
            )


def _metric(
    scope: BaselineScope, trials: dict[str, str], benchmark: str, metric: str, unit: str, better: str | None
) -> "ImportedMetric":
    """What a row of runs is a metric of, from what it says, the options, and what is known of it already."""
    from seatrial.baseline.imported import imported_metric
    from seatrial.suite import nearest

    if not benchmark and len(trials) == 1:
        (benchmark,) = trials
    if benchmark not in trials:
        what = f"there is no cell with benchmark {benchmark!r}" if benchmark else "the runs name no `benchmark`"
        fail(f"{what}{nearest(benchmark, trials)}; --select one cell, or give each run its `benchmark`")
    if not metric:
        fail("the runs name no `metric`; say --metric step_time, or what they are metrics of")
    series = scope.history.series(benchmark=benchmark, metric=metric, last=1)
    entries = [place.entry(benchmark, metric) for place in scope.places]
    before = [(one.unit, one.better) for one in reversed(series)]
    before += [(entry.bound.unit, entry.bound.better or "") for entry in entries if entry is not None]
    trial = trials[benchmark]
    return imported_metric(benchmark, trial, scope.suite.trials[trial], metric, unit, better, before)


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
    from seatrial.kinds.training.curve import curve_of, curve_text

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
    except Unreadable as error:
        fail(f"{found.id}: {error}", 1)
    except OSError as error:
        fail(f"{file} cannot be written: {error.strerror}")
    click.echo(f"saved {len(curve)} losses of {found.id}, steps {min(curve)} to {max(curve)}, in {file}")
