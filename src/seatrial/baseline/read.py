"""Reads a baseline file in Seatrial's or torchprime's form."""

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from seatrial.baseline.models import (
    CAP,
    OURS,
    STEP_TIME,
    TEXT_KEYS,
    THEIRS,
    BaselineEntry,
    Baselines,
    Disabled,
    Keys,
    MetricKeys,
    Provenance,
    TorchprimeKeys,
    seconds_of,
)
from seatrial.baseline.sheet import Sheet
from seatrial.job import Better, Bound, BoundState
from seatrial.suite.yaml.document import Document
from seatrial.suite.yaml.problem import KeyPath, SuiteError, describe, nearest
from seatrial.suite.yaml.source import FileLimits, Source, read_source

# torchprime's step_time_bounds.yaml: the bounds of each benchmark's step time.
#
#     `benchmarks`: for each id {name, step_time_lower_bound, step_time_upper_bound, confidence_interval, average,
#                   sample_size, target_loss, loss_tolerance}
#     `metadata`: {query_start, query_end, confidence_level}
#
# `confidence_interval` is the half-width. The key `seatrial` of an entry has what torchprime's keys cannot express.


LOWER, UPPER = "step_time_lower_bound", "step_time_upper_bound"
HALF, CENTER, RUNS = "confidence_interval", "average", "sample_size"
OWN_KEY = "seatrial"
# Half of the last digit written (8 digits of a bound, 5 of the half-width), on both sides.
ROUNDING = 2 * (0.5e-5 + 0.5e-8) + 1e-9


_Entries = dict[str, dict[str, BaselineEntry]]  # benchmark -> metric -> entry


def _read_torchprime(sheet: Sheet) -> _Entries:
    data = sheet.source.data if isinstance(sheet.source.data, dict) else {}
    sheet.warn_of_slips((), data, ("benchmarks", "metadata"))
    since_s = _since(sheet.map(("metadata",), "with `query_start` and `confidence_level`").get("query_start"))
    found: _Entries = {}
    for benchmark, written in sheet.map(("benchmarks",), "of benchmarks").items():
        path: KeyPath = ("benchmarks", benchmark)
        keys = sheet.validated(TorchprimeKeys, written, path)
        if keys is not None:
            entry = _entry(sheet, path, STEP_TIME, _as_ours(keys, since_s), LOWER, CENTER, (*path, OWN_KEY))
            loss = {"target_loss": keys.target_loss, "loss_tolerance": keys.loss_tolerance}
            found[benchmark] = {STEP_TIME: msgspec.structs.replace(entry, title=keys.name, **loss)}
            unsaid = keys.seatrial is None or keys.seatrial.state is None
            if entry.bound.state is BoundState.USABLE or (entry.bound.state is BoundState.RECORDING and unsaid):
                _check_open(sheet, path, keys)
            _check_convention(sheet, path, keys)
    return found


def _as_ours(keys: TorchprimeKeys, since_s: float | None) -> MetricKeys:
    """The entry in Seatrial's own form."""
    beside = keys.seatrial or Provenance()
    changed: dict[str, object] = {}
    if keys.step_time_lower_bound is None and keys.step_time_upper_bound is None and beside.state in (None, "usable"):
        changed = {"state": "recording", "why": f"neither `{LOWER}` nor `{UPPER}` is set"}
    return MetricKeys.model_construct(
        **{name: getattr(beside, name) for name in Provenance.model_fields}
        | {
            "lower": keys.step_time_lower_bound,
            "upper": keys.step_time_upper_bound,
            "center": keys.average,
            "unit": "s",
            "better": "lower",
            "disabled": keys.disabled,
            "runs": beside.runs or keys.sample_size,
            "figures": keys.sample_size if "runs" in beside.model_fields_set else None,
            "since": since_s if beside.since is None else beside.since,
        }
        | changed
    )


def _check_open(sheet: Sheet, path: KeyPath, keys: TorchprimeKeys) -> None:
    """Warns of a missing bound. torchprime always writes both, so it was lost, and no verdict would show that."""
    if all(getattr(keys, key) is None for key in (LOWER, UPPER, CENTER, HALF)):
        return  # nothing was measured yet
    for key in (LOWER, UPPER):
        if getattr(keys, key) is None:
            passes = "slow runs pass" if key == UPPER else "no run is ever `faster`"
            there = key in keys.model_fields_set
            sheet.warn((*path, key), f"`{key}` is {'empty' if there else 'missing'}, so {passes}", not there)


def _check_convention(sheet: Sheet, path: KeyPath, keys: TorchprimeKeys) -> None:
    lower, upper, half = keys.step_time_lower_bound, keys.step_time_upper_bound, keys.confidence_interval
    if half is not None and lower is not None and upper is not None and lower <= upper:
        # A negative lower bound is written as 0; then only the upper side can be compared.
        clamped = lower == 0 and keys.average is not None
        wide = 2 * (upper - (keys.average or 0.0)) if clamped else upper - lower
        allowed = ROUNDING + (1e-4 if clamped else 0.0)
        if abs(wide - 2 * half) > allowed + 1e-9 * abs(wide):
            distance = f"{UPPER} - {LOWER} is {upper - lower:.6g} (expected 2 x {HALF}, {2 * half:.6g})"
            sheet.warn((*path, LOWER), f"{distance}; edited by hand? the bounds are used")
    if keys.target_loss is not None and keys.loss_tolerance is None:
        sheet.warn((*path, "target_loss"), "`target_loss` needs `loss_tolerance`")


def _since(value: Any) -> float | None:
    """torchprime's times are ISO or GoogleSQL (`2025-05-29 17:52:00 America/Los_Angeles`); the day is enough."""
    for text in (str(value), str(value)[:10]):
        with contextlib.suppress(ValueError, OverflowError):
            return seconds_of(text)
    return None


# A baseline may be much longer than a suite.
BASELINE_LIMITS = FileLimits(
    "baseline", 32 << 20, 2_000_000, "use one file per suite", "use one file per suite", TEXT_KEYS
)
_VERSION = 1
TOP = {"baselines": OURS, "benchmarks": THEIRS}
_INVENTED = re.compile(r"#.*\b(dummy|copye?d from|copied from|made up|placeholder)\b", re.IGNORECASE)


def read_baselines(path: Path, better: Mapping[str, Better] | None = None) -> Baselines:
    """Raises SuiteError with every problem, each with file:line:column. Minor problems are in `.warnings`.

    `better` has the directions that the trials give their metrics; they take precedence, and a different one in the
    file is a warning."""
    return baselines_of(read_source(path, limits=BASELINE_LIMITS), better or {})


def read_for_trials(path: Path, trials: Sequence[object]) -> Baselines:
    """Reads the baseline file that these trials name; for `seatrial.suite.load`."""
    return read_baselines(path, agreed_better(trials))


def agreed_better(trials: Iterable[object]) -> dict[str, Better]:
    """Metric -> direction, for metrics on whose direction the trials agree."""
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
    found = _read_torchprime(sheet) if form == THEIRS else _read_ours(sheet, better or {})
    if source.problems:
        raise SuiteError(source.problems)
    if _INVENTED.search(source.text):
        found = _with_comments(sheet, found, form)
    return Baselines(source.file, form, found, sheet.warnings)


def _form(sheet: Sheet) -> str:
    data = sheet.source.data
    forms = [form for key, form in TOP.items() if isinstance(data, dict) and key in data]
    form = forms[0] if len(forms) == 1 else None
    if form is None and not (sheet.source.problems and data is None):
        keys = list(data) if isinstance(data, dict) else []
        why = "found both" if forms else f"found neither{nearest(keys[0], TOP) if keys else ''}"
        message = f"expected `baselines:` (Seatrial) or `benchmarks:` (torchprime) at the top; {why}"
        sheet.source.report(message, 1, 1)
    return form or OURS


def _read_ours(sheet: Sheet, better: Mapping[str, Better]) -> _Entries:
    data = sheet.source.data if isinstance(sheet.source.data, dict) else {}
    version = data.get("version", _VERSION)
    if version != _VERSION:
        sheet.source.report_path(("version",), f"unsupported version {describe(version)} (expected {_VERSION})")
    sheet.warn_of_slips((), data, ("version", "baselines"))
    found: _Entries = {}
    for benchmark in sheet.map(("baselines",), "of benchmarks"):
        path: KeyPath = ("baselines", benchmark)
        metrics = sheet.map(path, "of metrics, each a map with `lower` and `upper`")
        switch = sheet.validated(Switch, {key: metrics[key] for key in metrics if key == "disabled"}, path)
        for metric in metrics:
            at = (*path, metric)
            keys = sheet.validated(MetricKeys, metrics[metric], at) if metric != "disabled" else None
            if keys is None:
                continue
            if not keys.disabled and switch:
                keys = keys.model_copy(update={"disabled": switch.disabled})
            if keys.lower is None and keys.upper is None and keys.state in (None, "usable") and not keys.disabled:
                sheet.warn(at, "neither `lower` nor `upper` is set, so the metric is not checked", True)
            wanted = better.get(metric)
            if wanted is not None and keys.better not in (None, wanted):
                sheet.warn((*at, "better"), f"`better: {keys.better}` is ignored: the suite has `better: {wanted}`")
            keys = keys.model_copy(update={"better": wanted or keys.better or "lower"})
            worse, other = ("upper", "lower") if keys.better == "lower" else ("lower", "upper")
            if getattr(keys, worse) is None and getattr(keys, other) is not None and not keys.disabled:
                lost = f"`{worse}` is missing with `better: {keys.better}`, so a slower run is never reported; add it"
                sheet.warn(at, lost, True)
            found.setdefault(benchmark, {})[metric] = _entry(sheet, at, metric, keys, "lower", "center", at)
    return found


class Switch(Keys):
    """The keys of a benchmark beside its metrics."""

    disabled: Disabled = ""


def _entry(
    sheet: Sheet, path: KeyPath, metric: str, keys: MetricKeys, lower: str, center: str, shares: KeyPath
) -> BaselineEntry:
    """`lower` and `center` are the keys in the file; `shares` is the path of the map with `floor` and `cap`."""
    bound = Bound(
        metric=metric,
        lower=keys.lower,
        upper=keys.upper,
        better=keys.better,
        unit=keys.unit,
        center=keys.center,
        runs=keys.runs or 0,
        values=keys.figures or 0,
        width_runs=None if keys.width is None or not keys.width.model_fields_set else keys.width.runs or 0,
        since_s=keys.since,
        false_alarm=keys.false_alarm,
        state=BoundState.DISABLED if keys.disabled else BoundState(keys.state or "usable"),
        why=keys.disabled or keys.why,
        fingerprint=keys.fingerprint,
        conditions=keys.conditions,
        under_test=keys.under_test,
        changed=keys.changed.level() if keys.changed else None,
        source=f"{sheet.source.file}:{sheet.line(path)}",
    )
    sheet.check_shares(shares, keys, bound)
    sheet.check_sides(path, bound, lower, center, CAP if keys.cap is None else keys.cap)
    return BaselineEntry(str(path[1]), metric, bound, sheet.line(path), keys)


def _with_comments(sheet: Sheet, found: _Entries, form: str) -> _Entries:
    """Adds the lines of comments that mark numbers as invented; each is a warning."""
    document = Document(sheet.source)
    marked: _Entries = {}
    for benchmark, metrics in found.items():
        for metric, entry in metrics.items():
            path = ("benchmarks", benchmark) if form == THEIRS else ("baselines", benchmark, metric)
            lines = []
            for comment in document.comments(path):
                if _INVENTED.search(comment.text):
                    lines.append(comment.line)
                    message = f"{benchmark}: a comment marks the number as invented: {comment.text.strip()}"
                    sheet.warn_at(comment.line, comment.column, message)
            marked.setdefault(benchmark, {})[metric] = msgspec.structs.replace(entry, invented=tuple(lines))
    return marked


def is_bounds(path: Path) -> bool:
    """Whether this is a baseline file, by its top-level keys. Raises SuiteError if it cannot be read."""
    if path.suffix.lower() == ".csv":
        return False
    source = read_source(path, limits=BASELINE_LIMITS)
    return isinstance(source.data, dict) and any(key in source.data for key in TOP)
