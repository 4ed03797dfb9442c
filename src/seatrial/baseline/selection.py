"""Selects baseline files and entries for a command, and their runs in the history."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from seatrial.baseline.models import OURS, BaselineEntry, Baselines
from seatrial.job import Bound, RecentRun, unit_factor
from seatrial.record.history import RECENT, History, Point, Series, recent_values
from seatrial.suite import Cell, Suite

_MOST_RUNS = 1_000  # of a series; older ones say nothing about the next run
_RECENT_VALUES = 5 * RECENT  # a run may have several


@dataclass(frozen=True)
class SelectedFile:
    """A baseline file and its selected benchmarks."""

    name: str  # as written in the suite
    path: Path
    exists: bool
    baselines: Baselines
    trials: dict[str, str]  # by selected benchmark
    prefixes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by benchmark: prefixes of covered metrics

    def covers(self, benchmark: str, metric: str) -> bool:
        return metric.startswith(self.prefixes.get(benchmark, ("",)))

    def entry(self, benchmark: str, metric: str) -> BaselineEntry | None:
        return self.baselines.entries.get(benchmark, {}).get(metric)


def selected_files(suite: Suite, cells: Iterable[Cell], switched_off: bool = False) -> list[SelectedFile]:
    """The files that the trials of these cells name, in the order of the suite.

    With `switched_off`, also those of disabled trials, which have no cells."""
    found: dict[str, dict[str, str]] = {}
    prefixes: dict[str, dict[str, tuple[str, ...]]] = {}
    for cell in cells:
        for file, of_metrics in cell.spec.baseline_files().items():
            found.setdefault(file, {})[cell.benchmark] = cell.trial
            prefixes.setdefault(file, {})[cell.benchmark] = of_metrics
    for model in suite.trials.values() if switched_off else ():
        for file in model.baseline_files() if model.disabled is not None else ():
            found.setdefault(file, {})
    made = []
    for name, trials in found.items():
        path = suite.directory / name
        known = suite.baselines.get(name)
        baselines = known if isinstance(known, Baselines) else Baselines(str(path), OURS)
        made.append(SelectedFile(name, path, known is not None, baselines, trials, prefixes.get(name, {})))
    return made


@dataclass(frozen=True)
class MetricHistory:
    """One metric of one benchmark, under the conditions of its last run."""

    series: Series
    points: list[Point]  # within the window, oldest first
    others: Sequence[Point]  # under other conditions
    older: Sequence[Point]  # before the window
    tested: Mapping[str, dict[str, str]] = field(default_factory=dict)  # by run: what was under test

    @property
    def left(self) -> str:
        """Describes the runs that are not in `points`; empty if there are none."""
        parts = ((self.others, "under other conditions"), (self.older, "before the window"))
        return ", ".join(f"{runs_text(points)} {where} left out" for points, where in parts if points)


def newest_histories(
    history: History, benchmark: str, metric: str | None, since_s: float | None = None
) -> list[MetricHistory]:
    """The newest series of each metric that can have bounds, or only of `metric`."""
    by_metric: dict[str, list[Series]] = {}
    for series in history.series(benchmark=benchmark, metric=metric, last=_MOST_RUNS):
        if series.better or metric is not None:
            by_metric.setdefault(series.metric, []).append(series)
    chosen = []
    for found in by_metric.values():
        newest = max(found, key=lambda one: one.points[-1].at_s)
        within = [point for point in newest.points if since_s is None or point.at_s >= since_s]
        older = [point for point in newest.points if since_s is not None and point.at_s < since_s]
        others = [point for one in found if one is not newest for point in one.points]
        tested = history.under_test(newest.trial, benchmark)
        chosen.append(MetricHistory(newest, within, others, older, tested))
    return chosen


def with_recent_runs(cells: Sequence[Cell], history: History) -> list[Cell]:
    """The cells with the last runs of each metric that has computed bounds, to find lasting shifts."""
    wanted = {(cell.benchmark, bound.metric) for cell in cells for bound in cell.bounds if bound.finds_shifts}
    if not wanted:
        return [*cells]
    names = [one for one in history.names(judged=True) if (one.benchmark, one.metric) in wanted]
    series: dict[tuple[str, str], list[Series]] = {}
    for one in sorted(history.filled(names, _RECENT_VALUES), key=lambda one: -one.points[-1].at_s):
        series.setdefault((one.benchmark, one.metric), []).append(one)

    def with_runs(bound: Bound, of_metric: Sequence[Series]) -> Bound:
        newest = next((one for one in of_metric if not bound.why_not_for(one.settings)), None)
        recent = recent_runs(newest, bound) if newest else []
        return msgspec.structs.replace(bound, recent=tuple(RecentRun(*run) for run in recent))

    return [
        replace(cell, bounds=tuple(with_runs(one, series.get((cell.benchmark, one.metric), ())) for one in cell.bounds))
        for cell in cells
    ]


def lost_bounds(cells: Sequence[Cell], history: History) -> list[str]:
    """Warnings about metrics of these cells that bounds checked in an earlier run and that have none now."""
    before, files = history.checked(), {cell.benchmark: " and ".join(cell.spec.baseline_files()) for cell in cells}
    now = {(cell.benchmark, bound.metric) for cell in cells for bound in cell.bounds}
    return [
        f"{benchmark} {metric} is no longer checked: it had bounds in run {run}, but {files[benchmark] or 'the suite'} "
        "has no entry for it now; restore the entry, or add one with `disabled: REASON`"
        for (benchmark, metric), run in sorted(before.items())
        if benchmark in files and (benchmark, metric) not in now
    ]


def recent_runs(series: Series, bound: Bound) -> list[tuple[str, float]]:
    """The last runs of a series in the unit of the bounds; empty if these are not for its conditions."""
    factor = unit_factor(series.unit, bound.unit)
    if factor is None or not bound.finds_shifts or bound.why_not_for(series.settings):
        return []
    return [(run, value * factor) for run, value in recent_values(series.points, bound.since_s)]


def runs_of(points: Iterable[Point]) -> list[str]:
    """The runs of these points, each once, oldest first."""
    return list(dict.fromkeys(point.run for point in points))


def runs_text(points: Sequence[Point]) -> str:
    """`41 runs`; `8 values of 1 run` if a run has several."""
    count = len(runs_of(points))
    runs = f"{count:,} run{'' if count == 1 else 's'}"
    return f"{len(points):,} values of {runs}" if len(points) > count else runs
