"""Reads a file of bounds, whichever of the two forms it has."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial.baseline.models import (
    CAP,
    OURS,
    STEP_TIME,
    THEIRS,
    BaselineEntry,
    Baselines,
    Disabled,
    Keys,
    MetricKeys,
    Provenance,
    TorchprimeKeys,
    describe_value,
    seconds_of,
    state_of,
)
from seatrial.baseline.sheet import Sheet
from seatrial.job import Better, Bound, BoundState
from seatrial.suite.yaml.document import Document
from seatrial.suite.yaml.problem import KeyPath, Problem, SuiteError, nearest
from seatrial.suite.yaml.source import FileLimits, Source, read_source

# torchprime's step_time_bounds.yaml: the bounds of each benchmark's step time, and what its own convention asks.
#
#     `benchmarks`: for each id {name, step_time_lower_bound, step_time_upper_bound, confidence_interval, average,
#                   sample_size, target_loss, loss_tolerance}
#     `metadata`: {query_start, query_end, confidence_level}
#
# `confidence_interval` is half the distance of the bounds. A key `seatrial` of an entry holds what its own keys cannot.


LOWER, UPPER = "step_time_lower_bound", "step_time_upper_bound"
HALF, CENTER, RUNS = "confidence_interval", "average", "sample_size"
OWN_KEY = "seatrial"
# Half of the last digit that is written: 8 of a bound, 5 of the half-width, each counted on both sides.
ROUNDING = 2 * (0.5e-5 + 0.5e-8) + 1e-9


def read_torchprime(sheet: Sheet) -> dict[str, dict[str, BaselineEntry]]:
    data = sheet.source.data if isinstance(sheet.source.data, dict) else {}
    sheet.warn_of_slips((), data, ("benchmarks", "metadata"))
    since_s = _since(sheet.map(("metadata",), "with `query_start` and `confidence_level`").get("query_start"))
    found: dict[str, dict[str, BaselineEntry]] = {}
    for benchmark, written in sheet.map(("benchmarks",), "of benchmarks").items():
        path: KeyPath = ("benchmarks", benchmark)
        keys = sheet.validated(TorchprimeKeys, written, path)
        if keys is not None:
            found[benchmark] = {STEP_TIME: _torchprime_entry(sheet, path, keys, since_s)}
    return found


def _torchprime_entry(sheet: Sheet, path: KeyPath, keys: TorchprimeKeys, since_s: float | None) -> BaselineEntry:
    beside = keys.seatrial or Provenance()
    bound = _torchprime_bound(sheet, path, keys, beside, since_s)
    sheet.check_shares((*path, OWN_KEY), beside, bound)
    sheet.check_sides(path, bound, LOWER, CENTER, CAP if beside.cap is None else beside.cap)
    if bound.state is BoundState.USABLE or (bound.state is BoundState.RECORDING and beside.state is None):
        _check_open(sheet, path, keys)
    _check_convention(sheet, path, keys)
    return BaselineEntry(
        benchmark=str(path[1]),
        metric=STEP_TIME,
        bound=bound,
        line=sheet.line(path),
        title=keys.name,
        target_loss=keys.target_loss,
        loss_tolerance=keys.loss_tolerance,
        **beside.for_entry(),
    )


def _torchprime_bound(
    sheet: Sheet, path: KeyPath, keys: TorchprimeKeys, beside: Provenance, since_s: float | None
) -> Bound:
    lower, upper = keys.step_time_lower_bound, keys.step_time_upper_bound
    state, why = state_of(beside), beside.why
    if lower is None and upper is None and state is BoundState.USABLE:
        state, why = BoundState.RECORDING, f"it has neither `{LOWER}` nor `{UPPER}`"
    return Bound(
        metric=STEP_TIME,
        lower=lower,
        upper=upper,
        better="lower",
        unit="s",
        center=keys.average,
        runs=beside.runs or keys.sample_size or 0,
        values=keys.sample_size or 0 if "runs" in beside.model_fields_set else 0,
        since_s=since_s if beside.since is None else beside.since,
        state=BoundState.DISABLED if keys.disabled else state,
        why=keys.disabled or why,
        source=f"{sheet.source.file}:{sheet.line(path)}",
        **beside.for_bound(),
    )


def _check_open(sheet: Sheet, path: KeyPath, keys: TorchprimeKeys) -> None:
    """Their tool writes both bounds, always: one that is not there was lost, and no verdict would show it."""
    if all(getattr(keys, key) is None for key in (LOWER, UPPER, CENTER, HALF)):
        return  # nothing was measured yet
    for key in (LOWER, UPPER):
        if getattr(keys, key) is None:
            passes = "a run may be as slow as it likes" if key == UPPER else "no run is ever `faster`"
            there = key in keys.model_fields_set
            sheet.warn((*path, key), f"`{key}` is {'empty' if there else 'missing'}, so {passes}", not there)


def _check_convention(sheet: Sheet, path: KeyPath, keys: TorchprimeKeys) -> None:
    lower, upper, half = keys.step_time_lower_bound, keys.step_time_upper_bound, keys.confidence_interval
    if half is not None and lower is not None and upper is not None and lower <= upper:
        # A lower bound that would be negative is written as 0; then only the upper side can be compared.
        clamped = lower == 0 and keys.average is not None
        wide = 2 * (upper - (keys.average or 0.0)) if clamped else upper - lower
        allowed = ROUNDING + (1e-4 if clamped else 0.0)
        if abs(wide - 2 * half) > allowed + 1e-9 * abs(wide):
            distance = f"{UPPER} - {LOWER} is {upper - lower:.6g}, and 2 x {HALF} is {2 * half:.6g}"
            sheet.warn((*path, LOWER), f"edited by hand? {distance}; the bounds are what counts")
    if keys.target_loss is not None and keys.loss_tolerance is None:
        sheet.warn((*path, "target_loss"), "`target_loss` without `loss_tolerance`: how far off may it be?")


def _since(value: Any) -> float | None:
    """Their times are ISO or GoogleSQL (`2025-05-29 17:52:00 America/Los_Angeles`), of which the day is enough."""
    try:
        return seconds_of(str(value))
    except (ValueError, OverflowError):
        pass
    try:
        return seconds_of(str(value)[:10])
    except (ValueError, OverflowError):
        return None


# Each entry lists its runs, so a file may be much longer than a suite.
BASELINE_LIMITS = FileLimits(
    "baseline", 32 << 20, 2_000_000, "give every suite a file of its own", "give every suite its own file"
)
_VERSION = 1
TOP = {"baselines": OURS, "benchmarks": THEIRS}
_INVENTED = re.compile(r"#.*\b(dummy|copye?d from|copied from|made up|placeholder)\b", re.IGNORECASE)


def read_baselines(path: Path, better: Mapping[str, Better] | None = None) -> Baselines:
    """Raises SuiteError with every problem, each with file:line:column. What is only odd is in `.warnings`.

    `better` is what the trials say of their metrics: their word counts, and an entry with another is a warning."""
    return baselines_of(read_source(path, limits=BASELINE_LIMITS), better or {})


def read_for_trials(path: Path, trials: Sequence[object]) -> Baselines:
    """The same for the trials that name the file; what `seatrial.suite.load` reads baselines with."""
    return read_baselines(path, agreed_better(trials))


def agreed_better(trials: Iterable[object]) -> dict[str, Better]:
    """Metric -> which way is better, where all of these trials that say so say the same."""
    directions: dict[str, set[Better]] = {}
    for trial in trials:
        for name, metric in (getattr(trial, "metrics", None) or {}).items():
            direction = getattr(metric, "better", None)
            if direction is not None:
                directions.setdefault(name, set()).add(direction)
    return {name: words.pop() for name, words in directions.items() if len(words) == 1}


def baselines_of(source: Source, better: Mapping[str, Better] | None = None) -> Baselines:
    sheet = Sheet(source)
    form = _form(sheet)
    found = read_torchprime(sheet) if form == THEIRS else _read_ours(sheet, better or {})
    if sheet.problems:
        raise SuiteError(sheet.problems)
    if _INVENTED.search(source.text):
        found = _with_comments(sheet, found, form)
    return Baselines(source.file, form, found, sheet.warnings)


def _form(sheet: Sheet) -> str:
    data = sheet.source.data
    forms = [form for key, form in TOP.items() if isinstance(data, dict) and key in data]
    form = forms[0] if len(forms) == 1 else None
    if form is None and not (sheet.problems and data is None):
        keys = list(data) if isinstance(data, dict) else []
        why = "both are here" if forms else f"neither is here{nearest(keys[0], TOP) if keys else ''}"
        sheet.problems.append(
            Problem(
                f"a file of bounds has `baselines:` (Seatrial's) or `benchmarks:` (torchprime's) at its top; {why}",
                sheet.source.mark(1, 1),
            )
        )
    return form or OURS


def _read_ours(sheet: Sheet, better: Mapping[str, Better]) -> dict[str, dict[str, BaselineEntry]]:
    data = sheet.source.data if isinstance(sheet.source.data, dict) else {}
    version = data.get("version", _VERSION)
    if version != _VERSION:
        sheet.error(("version",), f"this Seatrial reads version {_VERSION} of this file, not {describe_value(version)}")
    sheet.warn_of_slips((), data, ("version", "baselines"))
    found: dict[str, dict[str, BaselineEntry]] = {}
    for benchmark in sheet.map(("baselines",), "of benchmarks"):
        path: KeyPath = ("baselines", benchmark)
        metrics = sheet.map(path, "of metrics, each a map with `lower` and `upper`")
        switch = sheet.validated(Switch, {key: metrics[key] for key in metrics if key == "disabled"}, path)
        for metric in metrics:
            if metric != "disabled":
                keys = sheet.validated(MetricKeys, metrics[metric], (*path, metric))
                if keys is not None:
                    off = keys.disabled or (switch.disabled if switch else "")
                    entry = _entry(sheet, (*path, metric), keys, off, better.get(metric))
                    found.setdefault(benchmark, {})[metric] = entry
    return found


class Switch(Keys):
    """What a benchmark of ours has beside its metrics."""

    disabled: Disabled = ""


def _entry(sheet: Sheet, path: KeyPath, keys: MetricKeys, disabled: str, better: Better | None) -> BaselineEntry:
    bound = _bound(sheet, path, keys, disabled, better)
    sheet.check_shares(path, keys, bound)
    sheet.check_sides(path, bound, "lower", "center", CAP if keys.cap is None else keys.cap)
    return BaselineEntry(
        benchmark=str(path[1]), metric=str(path[2]), bound=bound, line=sheet.line(path), **keys.for_entry()
    )


def _bound(sheet: Sheet, path: KeyPath, keys: MetricKeys, disabled: str, better: Better | None) -> Bound:
    state = state_of(keys)
    if keys.lower is None and keys.upper is None and state is BoundState.USABLE and not disabled:
        sheet.warn(path, "neither `lower` nor `upper` is here, so nothing is judged by it", True)
    return Bound(
        metric=str(path[2]),
        lower=keys.lower,
        upper=keys.upper,
        better=_better(sheet, (*path, "better"), keys.better, better),
        unit=keys.unit,
        center=keys.center,
        runs=keys.runs or 0,
        values=keys.figures or 0,
        since_s=keys.since,
        state=BoundState.DISABLED if disabled else state,
        why=disabled or keys.why,
        source=f"{sheet.source.file}:{sheet.line(path)}",
        **keys.for_bound(),
    )


def _better(sheet: Sheet, path: KeyPath, direction: Better | None, of_suite: Better | None) -> Better:
    if of_suite is not None and direction not in (None, of_suite):
        sheet.warn(
            path,
            f"`better: {direction}` contradicts the suite, which says {of_suite} of {path[-2]}; the suite counts",
        )
    return of_suite or direction or "lower"


def _with_comments(
    sheet: Sheet, found: dict[str, dict[str, BaselineEntry]], form: str
) -> dict[str, dict[str, BaselineEntry]]:
    """The entries with the lines of comments which say that their numbers are not measured; each is a warning."""
    import msgspec

    document = Document(sheet.source.text)
    marked: dict[str, dict[str, BaselineEntry]] = {}
    for benchmark, metrics in found.items():
        for metric, entry in metrics.items():
            path = ("benchmarks", benchmark) if form == THEIRS else ("baselines", benchmark, metric)
            lines = []
            for comment in document.comments(path):
                if _INVENTED.search(comment.text):
                    lines.append(comment.line)
                    message = (
                        f"{benchmark}: this says that its number is invented, not measured: {comment.text.strip()}"
                    )
                    sheet.warn_at(comment.line, comment.column, message)
            marked.setdefault(benchmark, {})[metric] = msgspec.structs.replace(entry, invented=tuple(lines))
    return marked


def is_bounds(path: Path) -> bool:
    """Whether it is a file of bounds at all, by its top-level keys. Raises SuiteError when it cannot be read."""
    if path.suffix.lower() == ".csv":
        return False
    source = read_source(path, limits=BASELINE_LIMITS)
    return isinstance(source.data, dict) and any(key in source.data for key in TOP)
