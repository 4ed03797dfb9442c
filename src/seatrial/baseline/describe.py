"""Describes the entries of a baseline and how their last run compares."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from seatrial.baseline.models import BaselineEntry, relative_half_width
from seatrial.baseline.new_bounds import accepted_from, counted_reasons
from seatrial.baseline.selection import MetricHistory, SelectedFile, newest_histories, recent_runs, runs_text
from seatrial.checks.bounds import bound_sentence, shift_of
from seatrial.job import Bound, BoundState, Level, Unreadable, count, pair_text, value_text
from seatrial.record import RunFolder
from seatrial.record.history import History, Point
from seatrial.suite import Suite


@dataclass(frozen=True)
class ShownBaseline:
    benchmark: str
    metric: str
    sentence: str
    details: tuple[str, ...] = ()


def describe_baselines(file: SelectedFile, history: History, metric: str | None = None) -> list[ShownBaseline]:
    """One per entry of the selected benchmarks, and one per metric or benchmark without an entry."""
    shown = []
    for benchmark in file.trials:
        runs = {
            chosen.series.metric: chosen
            for chosen in newest_histories(history, benchmark, metric)
            if file.covers(benchmark, chosen.series.metric)
        }
        entries = file.baselines.entries.get(benchmark, {})
        named = [name for name in dict.fromkeys([*entries, *runs]) if metric is None or name == metric]
        shown += [_shown(benchmark, name, entries.get(name), runs.get(name)) for name in named]
        if not named:
            why = "no entry, and no runs with a metric that can have bounds"
            shown.append(ShownBaseline(benchmark, metric or "", why))
    return shown


def unused(file: SelectedFile, suite: Suite) -> list[ShownBaseline]:
    """Entries without a cell that would run: the entry or its trial is disabled, or the trial was renamed."""
    shown = []
    for benchmark, entries in file.baselines.entries.items():
        if benchmark not in file.trials:
            disabled = _disabled(suite, benchmark)
            for metric, entry in entries.items():
                why = f"trial is disabled: {disabled}" if disabled else "not used by any cell"
                if entry.bound.state is BoundState.DISABLED:
                    why = f"disabled: {entry.bound.why}"
                shown.append(ShownBaseline(benchmark, metric, why))
    return shown


def _disabled(suite: Suite, benchmark: str) -> str:
    """Why the trial of this benchmark is disabled; empty if it is not."""
    for name, model in suite.trials.items():
        own = re.escape(model.benchmark) if model.benchmark else rf"{re.escape(name)}(\[.*\])?"
        # A disabled trial has no cells, so `${axis}` may be anything.
        if model.disabled is not None and re.fullmatch(re.sub(r"\\\$\\\{.*?\\\}", ".+", own), benchmark):
            return model.disabled
    return ""


def _shown(benchmark: str, metric: str, entry: BaselineEntry | None, chosen: MetricHistory | None) -> ShownBaseline:
    if entry is None:
        so_far = runs_text(chosen.points if chosen else [])
        return ShownBaseline(benchmark, metric, f"no entry; {so_far} so far; run `seatrial baseline update`")
    bound = _with_newest_change(entry, chosen)
    point = chosen.points[-1] if chosen and chosen.points else None
    if point is None:
        text = f"no run yet; bounds {pair_text(bound.lower, bound.upper, bound.unit, ' to ')}"
    elif bound.state is BoundState.USABLE:
        text = bound_sentence(bound, point.value, point.at_s)
        shift = shift_of(bound, recent_runs(chosen.series, bound)) if chosen else None
        text += f"; it has been {shift.text}" if shift else ""
    else:
        text = f"{value_text(point.value, bound.unit)}, not checked"
    if bound.state is not BoundState.USABLE:
        text += f"; {bound.state}: {bound.why}"
    return ShownBaseline(benchmark, metric, text, tuple(_details(entry, chosen)))


def _with_newest_change(entry: BaselineEntry, chosen: MetricHistory | None) -> Bound:
    """The bound with the last change of the level: the entry's, or a newer one in the history.

    Runs outside their bounds count here, because a change of the level looks like that."""
    from seatrial.stats.changes import change_points

    bound = entry.bound
    if chosen is None or bound.why_not_for(chosen.series.settings):
        return bound
    since = chosen.points[accepted_from(chosen.points, entry) or 0 :]
    good = [point for point in since if point.good and math.isfinite(point.value)]
    changes = change_points([point.value for point in good])
    if not changes:
        return bound
    point = good[changes[-1].index]
    if bound.changed and (point.run == bound.changed.run or point.at_s < bound.changed.at_s):
        return bound
    level = Level(point.run, point.at_s, changes[-1].before, changes[-1].after)
    return msgspec.structs.replace(bound, changed=level)


def _details(entry: BaselineEntry, chosen: MetricHistory | None) -> list[str]:
    half = relative_half_width(entry.bound)
    width = f"±{half:.2%}" if half is not None else ""
    details = [
        ", ".join(part for part in (width, entry.keys.method, entry.keys.hardware) if part not in ("", "none yet"))
    ]
    details.append(counted_reasons(entry.keys.left_out))
    if chosen and (other := entry.bound.why_not_for(chosen.series.settings)):
        details.append(f"the last run is not checked against them: {other}")
    if entry.keys.reasons:
        last = entry.keys.reasons[-1]
        details.append(f"{last.get('at', '?')[:10]} {last.get('what', 'changed')}: {last.get('why', '?')}")
    if entry.invented:
        details.append(f"a comment in line {entry.invented[0]} marks the number as invented")
    return [detail for detail in details if detail]


def hardware_of(runs: Path, points: Sequence[Point]) -> str:
    """Hardware of the newest run: `AMD EPYC 7B12, 2 cores, 4 × NVIDIA A100`; empty if unknown."""
    if not points:
        return ""
    folder = RunFolder(runs / points[-1].run)
    results = folder.read_results()
    found = next((one for one in results.cells if one.id == points[-1].id), None) if results else None
    if found is None or not found.attempts:
        return ""
    try:
        last = found.attempts[-1]
        return hardware_text(folder.read_observation(found.hash, last.number, next(iter(last.parts), "job")).hardware)
    except Unreadable:
        return ""


def hardware_text(hardware: Mapping[str, Any]) -> str:
    parts = [str(hardware["cpu"])] if hardware.get("cpu") else []
    if hardware.get("cores"):
        parts.append(f"{hardware['cores']} core{'s' if hardware['cores'] != 1 else ''}")
    gpus = hardware.get("gpu")
    models = Counter(map(str, gpus)) if isinstance(gpus, list) else Counter()
    parts += [f"{number} × {model}" for model, number in models.items()]
    tpu = hardware.get("tpu")
    if isinstance(tpu, dict):
        parts.append(" ".join(str(tpu[key]) for key in ("type", "topology") if tpu.get(key)) or "TPU")
    if others := hardware.get("others"):
        parts.append(f"{count(len(others), 'host')} with other hardware")
    return ", ".join(parts)
