"""torchprime's step_time_bounds.yaml: the bounds of each benchmark's step time, and what its own convention asks.

    benchmarks:
      <id>: {name, step_time_lower_bound, step_time_upper_bound, confidence_interval, average, sample_size,
             target_loss, loss_tolerance}
    metadata: {query_start, query_end, confidence_level}

`confidence_interval` is half the distance of the bounds. A key `seatrial` of an entry holds what its own keys cannot.
"""

from typing import Any

from seatrial.baseline.entry import CAP, STEP_TIME, BaselineEntry, seconds_of
from seatrial.baseline.models import Provenance, TorchprimeKeys, state_of
from seatrial.baseline.sheet import Sheet
from seatrial.job import Bound, BoundState
from seatrial.suite.yaml.problem import KeyPath

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
            found[benchmark] = {STEP_TIME: _entry(sheet, path, keys, since_s)}
    return found


def _entry(sheet: Sheet, path: KeyPath, keys: TorchprimeKeys, since_s: float | None) -> BaselineEntry:
    beside = keys.seatrial or Provenance()
    bound = _bound(sheet, path, keys, beside, since_s)
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


def _bound(sheet: Sheet, path: KeyPath, keys: TorchprimeKeys, beside: Provenance, since_s: float | None) -> Bound:
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
        figures=keys.sample_size or 0 if "runs" in beside.model_fields_set else 0,
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
