"""What the bounds of an entry say of its last run, in plain sentences."""

from collections import Counter
from dataclasses import dataclass

import msgspec

from seatrial.check.bounds import sentence
from seatrial.engine.baseline.make import cleaned
from seatrial.engine.baseline.place import Chosen, Place, choose
from seatrial.job import Bound, BoundState, Level
from seatrial.record.history import History
from seatrial.suite.baseline import Entry


@dataclass(frozen=True)
class Shown:
    benchmark: str
    metric: str
    sentence: str
    details: tuple[str, ...] = ()


def show(place: Place, history: History, metric: str | None = None) -> list[Shown]:
    """One for each entry of the selected benchmarks, and one for each of them that has none."""
    shown = []
    for benchmark in place.benchmarks:
        runs = {chosen.series.metric: chosen for chosen in choose(history, benchmark, metric)}
        entries = place.baselines.entries.get(benchmark, {})
        named = [name for name in dict.fromkeys([*entries, *runs]) if metric is None or name == metric]
        shown += [_shown(benchmark, name, entries.get(name), runs.get(name)) for name in named]
        if not named:
            shown.append(Shown(benchmark, metric or "", "no entry, and no run with a figure that could have one"))
    return shown


def unused(place: Place) -> list[str]:
    """Entries of no cell that would run: of a trial that was renamed or is switched off, say."""
    return [benchmark for benchmark in place.baselines.entries if benchmark not in place.benchmarks]


def _shown(benchmark: str, metric: str, entry: Entry | None, chosen: Chosen | None) -> Shown:
    count = len(chosen.points) if chosen else 0
    if entry is None:
        told = f"no entry; {count} run{'' if count == 1 else 's'} so far, `seatrial baseline update` makes one"
        return Shown(benchmark, metric, told)
    bound = _with_newest_change(entry, chosen)
    point = chosen.points[-1] if chosen and chosen.points else None
    if point is None:
        told = f"no run yet; {_range(bound)}"
    elif bound.state is BoundState.USABLE:
        told = sentence(bound, point.value, point.at_s)
    else:
        unit = f" {bound.unit}" if bound.unit else ""
        told = f"{point.value:.4g}{unit}, not judged"
    if bound.state is not BoundState.USABLE:
        told += f"; {'switched off' if bound.state is BoundState.DISABLED else bound.state}: {bound.why}"
    return Shown(benchmark, metric, told, tuple(_details(entry, chosen)))


def _with_newest_change(entry: Entry, chosen: Chosen | None) -> Bound:
    """The bound with the last change of the level that the history knows by now."""
    if chosen is None or not chosen.points:
        return entry.bound
    changes = cleaned(chosen.points, entry.bound.better, None).changes
    if not changes:
        return entry.bound
    point = chosen.points[changes[-1].index]
    level = Level(point.run, point.at_s, changes[-1].before, changes[-1].after)
    return msgspec.structs.replace(entry.bound, changed=level)


def _details(entry: Entry, chosen: Chosen | None) -> list[str]:
    bound, details = entry.bound, []
    half = entry.half_width
    width = f"±{half:.2%}" if half is not None else ""
    details.append(", ".join(part for part in (width, entry.method, entry.hardware) if part))
    if entry.left_out:
        counts = Counter(entry.left_out.values())
        details.append("left out: " + "; ".join(f"{count} × {why}" for why, count in counts.most_common()))
    if chosen and bound.fingerprint and chosen.series.fingerprint != bound.fingerprint:
        ran = f"({chosen.series.fingerprint}, the bounds are of {bound.fingerprint})"
        details.append(f"the last run is of another configuration or other hardware {ran}: it is not judged by them")
    if entry.reasons:
        last = entry.reasons[-1]
        details.append(f"{last.get('at', '?')[:10]} {last.get('what', 'changed')}: {last.get('why', '?')}")
    if entry.invented:
        details.append(f"a comment in line {entry.invented[0]} says that its number is invented")
    return [detail for detail in details if detail]


def _range(bound: Bound) -> str:
    unit = f" {bound.unit}" if bound.unit else ""
    sides = ["anything" if side is None else f"{side:.4g}" for side in (bound.lower, bound.upper)]
    return f"{sides[0]} to {sides[1]}{unit} would be in order"
