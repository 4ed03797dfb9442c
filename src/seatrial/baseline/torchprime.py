"""torchprime's step_time_bounds.yaml: the bounds of each benchmark's step time, and what its own convention asks.

    benchmarks:
      <id>: {name, step_time_lower_bound, step_time_upper_bound, confidence_interval, average, sample_size,
             target_loss, loss_tolerance}
    metadata: {query_start, query_end, confidence_level}

`confidence_interval` is half the distance of the bounds. A key `seatrial` of an entry holds what its own keys cannot.
"""

from typing import Any

from seatrial.baseline.entry import CAP, STEP_TIME, Entry, seconds_of
from seatrial.baseline.sheet import Path, Sheet
from seatrial.job import Bound, BoundState

LOWER, UPPER = "step_time_lower_bound", "step_time_upper_bound"
HALF, CENTER, RUNS = "confidence_interval", "average", "sample_size"
BESIDE = "seatrial"
KEYS = ("name", LOWER, UPPER, HALF, CENTER, RUNS, "target_loss", "loss_tolerance", "disabled", BESIDE)
# Half of the last digit that is written: 8 of a bound, 5 of the half-width, each counted on both sides.
ROUNDING = 2 * (0.5e-5 + 0.5e-8) + 1e-9


def read_theirs(sheet: Sheet) -> dict[str, dict[str, Entry]]:
    data = sheet.source.data if isinstance(sheet.source.data, dict) else {}
    sheet.near_misses((), data, ("benchmarks", "metadata"))
    metadata = sheet.map(("metadata",), data.get("metadata"), "with `query_start` and `confidence_level`")
    since_s = _since(metadata.get("query_start"))
    benchmarks = sheet.map(("benchmarks",), data.get("benchmarks"), "of benchmarks")
    found: dict[str, dict[str, Entry]] = {}
    for benchmark, value in benchmarks.items():
        path: Path = ("benchmarks", benchmark)
        values = sheet.map(path, value, f"with `{LOWER}` and `{UPPER}`")
        found[benchmark] = {STEP_TIME: _entry(sheet, path, values, since_s)}
    return found


def _entry(sheet: Sheet, path: Path, values: dict[str, Any], since_s: float | None) -> Entry:
    sheet.near_misses(path, values, KEYS)
    beside = sheet.map((*path, BESIDE), values.get(BESIDE), "of what Seatrial keeps of this entry")
    inner: Path = (*path, BESIDE)
    bound = _bound(sheet, path, values, beside, since_s)
    provenance = sheet.provenance(inner, beside)
    sheet.check_shares(inner, provenance["floor"], provenance["cap"], bound)
    sheet.check_sides(path, bound, LOWER, CENTER, CAP if provenance["cap"] is None else provenance["cap"])
    if bound.state is BoundState.USABLE or (bound.state is BoundState.RECORDING and "state" not in beside):
        _check_open(sheet, path, values, bound)
    _check_convention(sheet, path, values, bound)
    return Entry(
        benchmark=str(path[1]),
        metric=STEP_TIME,
        bound=bound,
        line=sheet.line(path),
        title=sheet.text((*path, "name"), values),
        **provenance,
        target_loss=sheet.number((*path, "target_loss"), values),
        loss_tolerance=sheet.number((*path, "loss_tolerance"), values),
    )


def _bound(sheet: Sheet, path: Path, values: dict[str, Any], beside: dict[str, Any], since_s: float | None) -> Bound:
    inner: Path = (*path, BESIDE)
    disabled = sheet.reason((*path, "disabled"), values)
    lower, upper = sheet.number((*path, LOWER), values), sheet.number((*path, UPPER), values)
    state = BoundState(sheet.choice((*inner, "state"), beside, BoundState, BoundState.USABLE))
    why = sheet.text((*inner, "why"), beside)
    if lower is None and upper is None and state is BoundState.USABLE:
        state, why = BoundState.RECORDING, f"it has neither `{LOWER}` nor `{UPPER}`"
    own_s = sheet.time((*inner, "since"), beside)
    return Bound(
        metric=STEP_TIME,
        lower=lower,
        upper=upper,
        better="lower",
        unit="s",
        center=sheet.number((*path, CENTER), values),
        runs=sheet.count((*inner, "runs"), beside) or sheet.count((*path, RUNS), values),
        figures=sheet.count((*path, RUNS), values) if "runs" in beside else 0,
        width_runs=sheet.width_runs(inner, beside),
        since_s=since_s if own_s is None else own_s,
        false_alarm=sheet.false_alarm((*inner, "false_alarm"), beside),
        state=BoundState.DISABLED if disabled else state,
        why=disabled or why,
        fingerprint=sheet.text((*inner, "fingerprint"), beside),
        changed=sheet.level((*inner, "changed"), beside.get("changed")),
        source=f"{sheet.source.file}:{sheet.line(path)}",
    )


def _check_open(sheet: Sheet, path: Path, values: dict[str, Any], bound: Bound) -> None:
    """Their tool writes both bounds, always: one that is not there was lost, and nobody would see it by a verdict."""
    if all(values.get(key) is None for key in (LOWER, UPPER, CENTER, HALF)):
        return  # nothing was measured yet
    for key, side in ((LOWER, bound.lower), (UPPER, bound.upper)):
        if side is None:
            passes = "a run may be as slow as it likes" if key == UPPER else "no run is ever `faster`"
            what = "is empty" if key in values else "is missing"
            sheet.warn((*path, key), f"`{key}` {what}, so {passes}", key not in values)


def _check_convention(sheet: Sheet, path: Path, values: dict[str, Any], bound: Bound) -> None:
    half = sheet.number((*path, HALF), values)
    if half is not None and half < 0:
        sheet.error((*path, HALF), f"`{HALF}` is half a distance, so not less than 0; it is {half:g}")
    elif half is not None and bound.lower is not None and bound.upper is not None and bound.lower <= bound.upper:
        # A lower bound that would be negative is written as 0; then only the upper side can be compared.
        clamped = bound.lower == 0 and bound.center is not None
        wide = 2 * (bound.upper - (bound.center or 0.0)) if clamped else bound.upper - bound.lower
        allowed = ROUNDING + (1e-4 if clamped else 0.0)
        if abs(wide - 2 * half) > allowed + 1e-9 * abs(wide):
            told = f"{UPPER} - {LOWER} is {bound.upper - bound.lower:.6g}, and 2 x {HALF} is {2 * half:.6g}"
            sheet.warn((*path, LOWER), f"edited by hand? {told}; the bounds are what counts")
    tolerance = values.get("loss_tolerance")
    if isinstance(tolerance, int | float) and tolerance < 0:
        sheet.error(
            (*path, "loss_tolerance"), f"`loss_tolerance` is a distance, so not less than 0; it is {tolerance:g}"
        )
    if values.get("target_loss") is not None and values.get("loss_tolerance") is None:
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
