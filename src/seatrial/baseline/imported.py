"""Imports data of other tools: bounds into a baseline file, runs into the history."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from seatrial import __version__
from seatrial.baseline.edit import Edit, Refused, Updated, Why
from seatrial.baseline.models import BaselineEntry, Baselines, relative_half_width, text_of
from seatrial.baseline.past_runs import PastRun
from seatrial.baseline.selection import SelectedFile
from seatrial.job import (
    VERSION,
    AttemptResult,
    BoundState,
    CellResult,
    Exit,
    Outcome,
    Place,
    RunResults,
    Stage,
    StageTime,
    Verdict,
    unit_factor,
)
from seatrial.record.history import IMPORTED, History
from seatrial.stats.bounds import CAP
from seatrial.suite import DeclaredMetric, TrialModel, nearest


@dataclass(frozen=True)
class ImportedMetric:
    """The benchmark and metric that imported runs belong to."""

    benchmark: str
    metric: str
    unit: str
    better: str
    trial: str
    factor: float = 1.0  # converts the file's unit to the suite's


def imported_metric(
    benchmark: str,
    trial: str,
    model: TrialModel,
    metric: str,
    unit: str,
    better: str | None,
    before: Iterable[tuple[str, str]],
) -> ImportedMetric:
    """Determines unit and direction of imported runs: the suite takes precedence, then `before` (units and directions
    already known), then `unit` and `better`. Raises Refused."""
    own = _declared(model, trial, metric)
    known = [(own.unit, own.better), *before]
    ours = next((unit for unit, _ in known if unit), "")
    way = next((way for _, way in known if way), None)
    if better and way and better != way:
        raise Refused(f"{metric}: --better {better} contradicts the suite ({way})")
    if not (way or better):
        raise Refused(f"direction of {metric} unknown; use --better lower or --better higher")
    factor = unit_factor(unit, ours)
    if factor is None:
        raise Refused(f"cannot convert {metric} from {unit} (runs) to {ours} (suite)")
    return ImportedMetric(benchmark, metric, ours or unit, str(way or better), trial, factor)


def _declared(model: TrialModel, trial: str, metric: str) -> DeclaredMetric:
    declared = model.declared_metrics()
    if declared is not None and metric not in declared:
        raise Refused(f"unknown metric {metric!r} of trial {trial!r}{nearest(metric, declared)}")
    return (declared or {}).get(metric, DeclaredMetric(""))


def import_bounds(
    file: SelectedFile, taken: Baselines, source: str, why: Why, trials: Mapping[str, TrialModel]
) -> tuple[list[Updated], list[str]]:
    """Edits that copy entries of another file for the selected benchmarks, and messages for refused ones."""
    updates, refused = [], []
    for benchmark, trial in file.trials.items():
        for metric, entry in taken.entries.get(benchmark, {}).items():
            try:
                fitting = _in_unit_of_suite(entry, _declared(trials[trial], trial, metric))
                updates.append(_taken(file.entry(benchmark, metric), fitting, source, why))
            except Refused as error:
                refused.append(f"{benchmark} {metric}: {error}")
    return updates, refused


def _in_unit_of_suite(entry: BaselineEntry, declared: DeclaredMetric) -> BaselineEntry:
    """Converts an entry to the unit and direction of the suite. Raises Refused."""
    bound = entry.bound
    factor = unit_factor(bound.unit, declared.unit)
    if factor is None:
        raise Refused(f"cannot convert bounds from {bound.unit} to {declared.unit} (suite)")
    if declared.better and bound.better and declared.better != bound.better:
        raise Refused(f"`better: {bound.better}` contradicts the suite ({declared.better})")

    sides = {"lower": bound.lower, "upper": bound.upper, "center": bound.center}
    scaled = {name: value * factor for name, value in sides.items() if value is not None}
    converted = msgspec.structs.replace(bound, unit=declared.unit or bound.unit, **scaled)
    return msgspec.structs.replace(entry, bound=converted)


def _taken(old: BaselineEntry | None, entry: BaselineEntry, source: str, why: Why) -> Updated:
    bound, half = entry.bound, relative_half_width(entry.bound)
    off = bound.state is BoundState.DISABLED
    cap = (old.keys.cap if old else None) or CAP
    if half is not None and half > cap and not why.force:
        raise Refused(f"±{half:.1%} exceeds the cap of ±{cap:.0%}; use --force to import it anyway")
    values = {
        "lower": bound.lower,
        "upper": bound.upper,
        "center": bound.center,
        "unit": bound.unit or None,
        "better": bound.better,
        "runs": bound.runs or None,
        "since": text_of(bound.since_s) if bound.since_s is not None else None,
        "method": entry.keys.method or f"as in {source}",
        "cap": half if half is not None and half > cap else cap,
        "state": str(BoundState.USABLE if off else bound.state),
        "why": None if off else bound.why or None,
        "disabled": bound.why if off else None,
    }
    notes = [f"a comment marks the number as invented ({source}:{entry.invented[0]})"] if entry.invented else []
    edit = Edit(entry.benchmark, entry.metric, values, why.of(f"imported from {source}"), entry.title)
    return Updated(edit, tuple(notes))


def newest_fingerprint(history: History, benchmark: str) -> str:
    """Fingerprint of the configuration and hardware of the last run; empty if nothing ran yet."""
    series = [one for one in history.series(benchmark=benchmark, last=1) if one.fingerprint]
    return max(series, key=lambda one: one.points[-1].at_s).fingerprint if series else ""


def past_results(
    runs: Iterable[PastRun], metric: ImportedMetric, fingerprint: str, why: Why, source: str
) -> Iterable[RunResults]:
    """The runs as results for the history. Importing the same runs again changes nothing."""
    # A unique prefix, so that it never replaces a run of Seatrial or of another import.
    digest = hashlib.sha256(f"{metric.benchmark}\0{metric.metric}".encode()).hexdigest()[:4]
    for one in runs:
        verdict = Verdict.PASSED if one.good else Verdict.FAILED
        attempt = AttemptResult(
            number=1,
            place=Place(target=IMPORTED, machine=""),
            stages=[StageTime(Stage.STARTED, one.at_s, source)],
            exit=Exit(Outcome.EXITED, 0 if one.good else 1),
            verdict=verdict,
        )
        measured = {"value": one.value * metric.factor, "unit": metric.unit, "better": metric.better, "source": source}
        cell = CellResult(
            id=metric.benchmark,
            hash=hashlib.sha256(metric.benchmark.encode()).hexdigest()[:8],
            axes={},
            verdict=verdict,
            trial=metric.trial,
            why=f"imported from {source}: {why.reason}",
            attempts=[attempt],
            metrics={metric.metric: measured},
            benchmark=metric.benchmark,
            fingerprint=fingerprint,
        )
        yield RunResults(
            version=VERSION,
            run=f"{IMPORTED}-{digest}-{one.run}",
            suite=IMPORTED,
            verdict=verdict,
            cells=[cell],
            suite_path=source,
            started_s=one.at_s,
            seatrial=__version__,
            commit=one.commit,
        )
