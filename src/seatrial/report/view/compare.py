"""Compares two runs: which metrics changed, by how much and how certain, and other differences."""

from collections.abc import Iterable, Mapping
from math import fsum
from typing import cast

import msgspec

from seatrial.job import (
    Better,
    CellResult,
    Change,
    FieldDifference,
    Metric,
    RunResults,
    differences,
    flatten_metrics,
    unit_factor,
    worst,
)
from seatrial.record.history import Series, benchmark_of
from seatrial.report.view.changes import change_of
from seatrial.report.view.series import past_values
from seatrial.report.view.words import grouped

SURE_OF_MOVE = 0.99  # confidence that a metric changed
LEAST_MOVE = 0.01  # smaller relative changes are ignored

Key = tuple[str, str, str, str]  # benchmark, fingerprint, metric, unit
_Values = dict[Key, tuple[Metric, list[float]]]  # of each repeat
_Tried = tuple[str, list[CellResult], list[CellResult]]  # a benchmark with its cells in both runs


class Movement(msgspec.Struct, frozen=True):
    """One metric of one benchmark in both runs. Unknown values are None, with the reason in `why`."""

    benchmark: str
    fingerprint: str
    metric: str
    unit: str
    better: str
    before: float | None
    after: float | None
    size: float | None  # relative: after / before - 1
    low: float | None  # 95 % confidence interval
    high: float | None
    sure: float
    n_before: int
    n_after: int
    noise: float | None = None  # relative, of single runs, from the history
    noise_runs: int = 0
    why: str = ""

    @property
    def moved(self) -> bool:
        return self.sure >= SURE_OF_MOVE and self.changed

    @property
    def maybe(self) -> bool:
        return not self.moved and self.changed and (self.sure >= 0.9 or bool(self.why))

    @property
    def changed(self) -> bool:
        """The value differs, certain or not. From 0, any other value does."""
        return abs(self.size) >= LEAST_MOVE if self.size is not None else self.before != self.after

    @property
    def way(self) -> str:
        if not self.better or self.before is None or self.after is None or self.after == self.before:
            return ""
        return "worse" if (self.after > self.before) == (self.better == "lower") else "better"


class OtherVerdict(msgspec.Struct, frozen=True):
    """A verdict that changed; the worst of the repeats in each run."""

    id: str  # of the cell, without `repeat`
    before: str
    after: str
    why: str = ""
    change: Change = Change.KNOWN  # new, slower, faster, fixed, same (good in another way) or known


class OtherCause(msgspec.Struct, frozen=True):
    """A cause of either run, with the number of its cells in each."""

    id: str
    verdict: str
    text: str
    before: int
    after: int


class OtherConditions(msgspec.Struct, frozen=True):
    """A benchmark with different conditions: its metrics are not compared."""

    benchmark: str
    before: list[str]  # fingerprints
    after: list[str]
    differences: list[FieldDifference] = []  # empty if the run is of an older Seatrial, which did not record them


class OtherUnderTest(msgspec.Struct, frozen=True):
    """Differences in what was under test, shared by these benchmarks."""

    differences: list[FieldDifference]
    benchmarks: list[str]


class RunComparison(msgspec.Struct, frozen=True):
    before: str
    after: str
    commit_before: str
    commit_after: str
    metrics: list[Movement] = msgspec.field(name="figures")  # in both runs; largest changes first
    verdicts: list[OtherVerdict]
    fingerprints: list[OtherConditions]  # their metrics are not compared
    only_before: list[str]  # ids of cells, without `repeat`
    only_after: list[str]
    cells: int  # in both runs; repeats count as one cell
    under_test: list[OtherUnderTest] = []
    causes: list[OtherCause] = []  # those of the second run first


def comparison_json(found: RunComparison) -> dict[str, object]:
    """The comparison as JSON, with `moved` and `way` for each metric."""
    metrics = [{**msgspec.to_builtins(one), "moved": one.moved, "way": one.way} for one in found.metrics]
    return {"version": 1, **msgspec.to_builtins(found), "figures": metrics}


class RunPair:
    """Two runs to compare; with `unjudged`, also metrics that are not checked. `changed` finds the metrics for which
    the past is needed, which gives their noise."""

    def __init__(self, before: RunResults, after: RunResults, unjudged: bool = False) -> None:
        self._before, self._after = before, after
        self._was = _values(before, unjudged)
        self._now = _in_units_of(self._was, _values(after, unjudged))

    def changed(self, most: int) -> list[Series]:
        """The metrics with a different value, without points; largest changes first."""
        found = []
        for key, (metric, now) in self._now.items():
            was = self._was[key][1] if key in self._was else []
            level = fsum(was) / len(was) if was else 0.0
            size = abs(fsum(now) / len(now) / level - 1) if level else 0.0
            if size >= LEAST_MOVE:
                found.append((size, Series(key[0], "", *key[1:], metric.better or "", [])))
        return [series for _, series in sorted(found, key=lambda one: -one[0])[:most]]

    def compare(self, past: Iterable[Series] = ()) -> RunComparison:
        before, after = self._before, self._after
        # By id without `repeat`: the runs may have different numbers of repeats.
        of_before, of_after = (grouped(run.cells, lambda cell: benchmark_of(cell.id)) for run in (before, after))
        both = [(name, of_before.pop(name), of_after.pop(name)) for name in list(of_before) if name in of_after]
        both += _renamed(of_before, of_after)
        tried = _tried(before, after)
        return RunComparison(
            before.run,
            after.run,
            before.commit,
            after.commit,
            _movements(self._was, self._now, _noises(before, after, past)),
            [other for pair in both if (other := _other_verdict(*pair))],
            _other_conditions(tried),
            list(of_before),
            list(of_after),
            len(both),
            _other_under_test(tried),
            _causes(before, after),
        )


def _causes(before: RunResults, after: RunResults) -> list[OtherCause]:
    was, now = ({cause.id: cause for cause in results.causes} for results in (before, after))
    made = []
    for id_, cause in {**now, **was, **now}.items():
        cells = [len(of[id_].cells) if id_ in of else 0 for of in (was, now)]
        made.append(OtherCause(id_, cause.verdict.value, cause.text, *cells))
    return made


def _renamed(before: dict[str, list[CellResult]], after: dict[str, list[CellResult]]) -> list[_Tried]:
    """Removes from both the cells with different ids but the same benchmark, and returns them as pairs."""
    known: dict[str, str] = {}
    for name, cells in after.items():
        known.setdefault(_benchmark(cells[0]), name)
    pairs = [(name, known.pop(_benchmark(cells[0]), "")) for name, cells in before.items()]
    return [(now, before.pop(was), after.pop(now)) for was, now in pairs if now]


def _other_verdict(name: str, before: list[CellResult], after: list[CellResult]) -> OtherVerdict | None:
    was, now = (worst([cell.verdict for cell in cells]) for cells in (before, after))
    if was is now:
        return None
    such = [cell for cell in after if cell.verdict is now]
    some = f"{len(such)} of {len(after)} repeats" if len(such) < len(after) else ""
    why = such[0].why or next((f.message for f in such[0].findings if f.verdict is now), "")
    text = ": ".join(part for part in (some, why) if part)
    return OtherVerdict(name, was.value, now.value, text, change_of(was.value, now))


def _benchmark(cell: CellResult) -> str:
    return cell.benchmark or benchmark_of(cell.id)


def _tried(before: RunResults, after: RunResults) -> list[_Tried]:
    """The benchmarks that ran in both, with their cells."""
    was, now = (grouped((cell for cell in run.cells if cell.attempts), _benchmark) for run in (before, after))
    return [(name, cells, now[name]) for name, cells in was.items() if name in now]


def _other_conditions(tried: Iterable[_Tried]) -> list[OtherConditions]:
    """Benchmarks of both runs with no conditions in common."""
    made = []
    for name, was, now in tried:
        prints = {cell.fingerprint for cell in was}, {cell.fingerprint for cell in now}
        if not prints[0] & prints[1]:
            known = was[0].conditions and now[0].conditions
            found = differences(was[0].conditions, now[0].conditions) if known else []
            made.append(OtherConditions(name, sorted(prints[0]), sorted(prints[1]), found))
    return made


def _other_under_test(tried: Iterable[_Tried]) -> list[OtherUnderTest]:
    recorded = [(name, was[0], now[0]) for name, was, now in tried if was[0].conditions and now[0].conditions]
    groups = grouped(recorded, lambda one: tuple(differences(one[1].under_test, one[2].under_test)))
    return [OtherUnderTest(list(found), [name for name, *_ in some]) for found, some in groups.items() if found]


def _values(results: RunResults, unjudged: bool) -> _Values:
    """Every metric of cells that finished, with one value per repeat."""
    found: _Values = {}
    for cell in results.cells:
        unjudged_only = bool(cell.attempts) and cell.attempts[-1].unjudged
        if cell.verdict.value not in ("passed", "xfail", "slower", "faster") and not unjudged_only:
            continue
        for metric in flatten_metrics(cell.metrics):
            if metric.better or unjudged:
                key = (_benchmark(cell), cell.fingerprint, metric.name, metric.unit)
                found.setdefault(key, (metric, []))[1].append(metric.value)
    return found


def _in_units_of(before: _Values, after: _Values) -> _Values:
    """The metrics of `after`, converted to their units in `before` where possible."""
    units = grouped(before, lambda key: key[:3])
    made = {}
    for key, (metric, values) in after.items():
        known = [same[3] for same in units.get(key[:3], [])]
        factors = [(unit, factor) for unit in known if (factor := unit_factor(key[3], unit)) is not None]
        unit, factor = (key[3], 1.0) if key[3] in known or not factors else factors[0]
        made[(*key[:3], unit)] = (metric, [value * factor for value in values])
    return made


def _noises(before: RunResults, after: RunResults, past: Iterable[Series]) -> dict[Key, list[float]]:
    """Past values of each series at one level, without those of the two runs."""
    from seatrial.stats.clean import clean_series

    found = {}
    for series in past:
        others = [point for point in series.points if point.run not in (before.run, after.run)]
        used = clean_series(past_values(others), cast(Better, series.better or "lower")).used
        key = (series.benchmark, series.fingerprint, series.metric, series.unit)
        found[key] = [others[index].value for index in used]
    return found


def _movements(before: _Values, after: _Values, past: Mapping[Key, list[float]]) -> list[Movement]:
    from seatrial.stats.compare import compare, relative_noise

    made = []
    for key in before:
        if key not in after:
            continue
        levels = past.get(key, [])
        noise = relative_noise(levels) if len(levels) >= 2 else None
        runs = len(levels) if noise is not None else 0
        found = compare(before[key][1], after[key][1], noise, max(runs, 2))
        sizes = (found.before, found.after, found.size, found.low, found.high)
        counts = (found.n_before, found.n_after)
        made.append(Movement(*key, after[key][0].better or "", *sizes, found.sure, *counts, noise, runs, found.why))

    def rank(one: Movement) -> tuple[bool, bool, float, float, str, str]:
        size = abs(one.size) if one.size is not None else float("inf")
        return not one.moved, not one.maybe, -round(one.sure, 3), -size, one.benchmark, one.metric

    return sorted(made, key=rank)
