"""`seatrial baseline import`: imports another tool's bounds or runs. `seatrial baseline curve`: saves a loss curve."""

from pathlib import Path

import click

from seatrial.api import find
from seatrial.baseline import imported, past_runs, read_baselines
from seatrial.checks.bounds import short_date
from seatrial.cli.baseline.scope import BaselineScope, say
from seatrial.cli.common import RUN, RUNS, cells_of, complete_cell, fail
from seatrial.job import Unreadable, count
from seatrial.kinds.training.curve import curve_of, curve_text
from seatrial.record import write_whole
from seatrial.suite import nearest


def import_bounds(scope: BaselineScope, file: Path) -> None:
    taken = read_baselines(file)
    for warning in taken.warnings:
        say(warning, err=True)
    refused, done = [], 0
    for baseline in scope.files:
        if baseline.exists and baseline.path.resolve() == file.resolve():
            fail(f"nothing to import: {file} is already the suite's baseline")
        updates, no = imported.import_bounds(baseline, taken, file.name, scope.why, scope.suite.trials)
        refused += no
        done += len(updates)
        scope.write(baseline, updates)
    known = {benchmark for baseline in scope.files for benchmark in baseline.trials}
    others = [benchmark for benchmark in taken.entries if benchmark not in known]
    if others:
        say(f"not imported: {', '.join(others)} (no selected cell has this benchmark)", err=True)
    for line in refused:
        say(f"refused: {line}", err=True)
    if refused or not done:
        fail("some bounds were not imported" if done else "nothing imported: the suite has none of these benchmarks", 1)


def import_runs(scope: BaselineScope, file: Path, metric: str | None, unit: str, better: str | None) -> None:
    """Options take precedence over the rows."""
    found = past_runs.read_runs(file)
    trials = {name: trial for baseline in scope.files for name, trial in baseline.trials.items()}
    groups: dict[tuple[str, str], list[past_runs.PastRun]] = {}
    for one in past_runs.assign_benchmarks(found.runs, trials):
        groups.setdefault((one.benchmark, one.metric), []).append(one)
    # Resolve the metric of every group before adding anything.
    series = [
        _metric(scope, trials, benchmark, metric or named, unit or runs[0].unit, better or runs[0].better or None)
        for (benchmark, named), runs in groups.items()
    ]
    if found.without_value:
        say(
            f"skipped {count(len(found.without_value), 'row')} without a value, first at {found.without_value[0]}",
            err=True,
        )
    for row, runs in zip(series, groups.values(), strict=True):
        fingerprint = imported.newest_fingerprint(scope.history, row.benchmark)
        if not scope.dry_run:
            scope.history.add(*imported.past_results(runs, row, fingerprint, scope.why, file.name))
        summary = (
            f"{count(len(runs), 'run')} of {row.metric} from {short_date(runs[0].at_s)} to {short_date(runs[-1].at_s)}"
        )
        say(f"{row.benchmark}: {'would add' if scope.dry_run else 'added'} {summary} to {scope.history.location}")
        if not fingerprint:
            say(
                "  conditions unknown: the suite has not run here yet. Bounds from these runs apply to the first runs "
                "here, but the two are never mixed; if the conditions are the same, run the suite once and import again"
            )


def _metric(
    scope: BaselineScope, trials: dict[str, str], benchmark: str, metric: str, unit: str, better: str | None
) -> imported.ImportedMetric:
    """The metric of a group of runs, from its rows, the options, the history and the baseline."""
    if not benchmark and len(trials) == 1:
        (benchmark,) = trials
    if benchmark not in trials:
        what = f"unknown benchmark {benchmark!r}" if benchmark else "the runs have no `benchmark`"
        fail(f"{what}{nearest(benchmark, trials)}; choose one cell with --select, or add `benchmark` to each row")
    if not metric:
        fail("the runs have no `metric`; use --metric, for example --metric step_time")
    series = scope.history.series(benchmark=benchmark, metric=metric, last=1)
    entries = [baseline.entry(benchmark, metric) for baseline in scope.files]
    before = [(one.unit, one.better) for one in reversed(series)]
    before += [(entry.bound.unit, entry.bound.better or "") for entry in entries if entry is not None]
    trial = trials[benchmark]
    return imported.imported_metric(benchmark, trial, scope.suite.trials[trial], metric, unit, better, before)


@click.command("curve", short_help="Save a run's losses as a reference curve.")
@RUN
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--cell", metavar="CELL", shell_complete=complete_cell, help="The cell: id, glob, axis=value or /hash.")
@click.option("--host", type=click.IntRange(min=0), help="Number of the host.  [default: the first with losses]")
@click.option("--force", is_flag=True, help="Overwrite an existing file; accept a cell that did not pass.")
@RUNS
def curve(run: str, file: Path, cell: str | None, host: int | None, force: bool, runs: Path) -> None:
    """Save the losses in the log of RUN (an id or prefix, a path, or `last`) to FILE (JSON, or CSV for .csv), by step.

    Use `loss: {curve: FILE}` in a training trial to compare later runs with it.
    """
    folder = find(runs, run)
    results = folder.read_results()
    if results is None:
        fail(f"{folder.run} is not finished; finish it with `seatrial attach {folder.run}`")
    wanted = {one.hash for one in cells_of(folder, cell)}
    tried = [one for one in results.cells if one.hash in wanted and one.attempts]
    if len(tried) != 1:
        names = "".join(f"\n  --cell '{one.id}'" for one in tried[:20])
        fail(f"{len(tried)} cells of {folder.run} match; choose one:{names}" if tried else "no matching cell has run")
    (found,) = tried
    if not found.verdict.good and not force:
        fail(f"{found.id} is {found.verdict}: {found.why}; use --force to save its losses anyway", 1)
    if file.exists() and not force:
        fail(f"{file} already exists; use --force to overwrite it", 1)
    last = found.attempts[-1]
    try:
        curve = curve_of(folder.read_observation(found.hash, last.number, next(iter(last.parts), "job")), host)
        write_whole(file, curve_text(curve, file.suffix == ".csv").encode())
    except Unreadable as error:
        fail(f"{found.id}: {error}", 1)
    except OSError as error:
        fail(f"cannot write {file}: {error.strerror}")
    click.echo(f"saved {len(curve)} losses of {found.id}, steps {min(curve)} to {max(curve)}, to {file}")
