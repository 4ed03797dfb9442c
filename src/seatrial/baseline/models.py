"""What may stand in a file of bounds, in either form. Unknown keys are the user's own, and are kept."""

import contextlib
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo

from seatrial.job import Better, Bound, BoundState, Level, flat_fields

OURS = "seatrial"
THEIRS = "torchprime"
STEP_TIME = "step_time"  # the one metric that torchprime's file has bounds for
FLOOR = 0.015  # half-width, as a share of the center, below which no bound goes
CAP = 0.2  # half-width, as a share of the center, above which a bound finds too little to be of use


class BaselineEntry(msgspec.Struct, frozen=True):
    """One metric of one benchmark. `bound` is what a run is judged by; the rest says where that comes from."""

    benchmark: str
    metric: str
    bound: Bound
    line: int
    title: str = ""  # the benchmark's name for people
    method: str = ""
    floor: float | None = None  # None: not said, so the default
    cap: float | None = None
    hardware: str = ""
    level: float | None = None  # the best that its center was, where it is not any more; None: its center
    left_out: dict[str, int] = {}  # reason -> metrics that its bounds are not made from
    accepted: str = ""  # the run from which on a new level was accepted
    accepted_s: float | None = None
    accepted_until_s: float | None = None  # when the last run started that was looked at then
    reasons: tuple[dict[str, str], ...] = ()  # of every change: at, what, why
    invented: tuple[int, ...] = ()  # lines with a comment which says that the numbers are
    target_loss: float | None = None  # of torchprime's file: a bound of its own, for the last loss
    loss_tolerance: float | None = None

    def bounds(self) -> tuple[Bound, ...]:
        """Its own, and where torchprime's file has a target for the last loss, one for that."""
        target, tolerance = self.target_loss, self.loss_tolerance
        if target is None or tolerance is None:
            return (self.bound,)
        # "loss" is the metric of a training trial.
        loss = Bound("loss", target - tolerance, target + tolerance, None, center=target, source=self.bound.source)
        if self.bound.state is BoundState.DISABLED:
            loss = msgspec.structs.replace(loss, state=BoundState.DISABLED, why=self.bound.why)
        return (self.bound, loss)


class Baselines(msgspec.Struct, frozen=True):
    """A file of bounds. `form` is whose file it is; `warnings` are texts that begin with file:line:column."""

    file: str
    form: str = OURS
    entries: dict[str, dict[str, BaselineEntry]] = {}  # benchmark -> metric -> entry
    warnings: tuple[str, ...] = ()

    def bounds(self, benchmark: str) -> tuple[Bound, ...]:
        """Those of a benchmark; one that is switched off is among them, and says so by its state."""
        return tuple(bound for entry in self.entries.get(benchmark, {}).values() for bound in entry.bounds())


def relative_half_width(bound: Bound) -> float | None:
    """As a share of the center; None when a side is open, or the center is zero."""
    if bound.lower is None or bound.upper is None:
        return None
    center = bound.center if bound.center is not None else (bound.lower + bound.upper) / 2
    return (bound.upper - bound.lower) / 2 / abs(center) if center else None


def seconds_of(text: str) -> float:
    """Wall seconds of `2026-10-03` or `2026-10-03T12:00:00Z`; without a zone it is universal time. Or ValueError."""
    time = datetime.fromisoformat(text.strip())
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def text_of(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# Where YAML makes a number of what was meant as a name (hex digits without a letter, say), the text counts.
TEXT_KEYS = frozenset(
    {"unit", "method", "measured", "why", "fingerprint", "hardware", "since", "at", "until", "run", "name"}
)


def describe_value(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a map" if isinstance(value, dict) else "a list"
    return "nothing" if value is None else repr(value if not isinstance(value, str) else value[:60])


def _number(value: Any, info: ValidationInfo) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    advice = ""
    with contextlib.suppress(ValueError):
        if isinstance(value, str) and math.isfinite(float(value)):
            advice = "; write it without quotes"
    if isinstance(value, str) and value.strip().lstrip("+-.").lower() in ("nan", "inf", "infinity"):
        advice = "; nothing is inside such a bound. Take the line out, or `seatrial baseline update` it"
    raise ValueError(f"`{info.field_name}` is a number, not {describe_value(value)}{advice}")


def _within(allowed: Callable[[float], bool], what: str) -> BeforeValidator:
    def check(value: Any, info: ValidationInfo) -> float:
        number = _number(value, info)
        if not allowed(number):
            raise ValueError(f"`{info.field_name}` is {what}, not {number:g}")
        return number

    return BeforeValidator(check)


def _is(what: str, made: Callable[[Any], Any]) -> BeforeValidator:
    """What `made` makes of a value; where it cannot, the field is said to be `what`."""

    def check(value: Any, info: ValidationInfo) -> Any:
        try:
            return made(value)
        except (ValueError, OverflowError, TypeError, AttributeError):
            raise ValueError(f"`{info.field_name}` is {what}, not {describe_value(value)}") from None

    return BeforeValidator(check)


def _text(value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise TypeError
    return value or ""


def _reason(value: Any) -> str:
    """Never empty, for a switch without a reason is forgotten on."""
    if not _text(value).strip():
        raise ValueError
    return str(value)


def _fields(value: Any) -> dict[str, str]:
    """Values that YAML makes numbers or lists of are compared as the text that they are everywhere else."""
    if value is not None and not isinstance(value, dict):
        raise TypeError
    return dict(flat_fields(value or {}, ""))


def _distance(value: Any, info: ValidationInfo) -> float:
    number = _number(value, info)
    if number < 0:
        half = "half a distance" if info.field_name == "confidence_interval" else "a distance"
        raise ValueError(f"`{info.field_name}` is {half}, so not less than 0; it is {number:g}")
    return number


Number = Annotated[float, BeforeValidator(_number)]
Cap = Annotated[float, _within(lambda number: number > 0, "more than 0")]
Share = Annotated[Cap, _within(lambda number: number < 1, "a share of all good runs, less than 1")]
_Count = Annotated[int, _within(lambda number: number >= 0 and number.is_integer(), "a whole number of runs")]
Distance = Annotated[float, BeforeValidator(_distance)]
Time = Annotated[float | None, _is("a time like 2026-10-03T12:00:00Z", lambda text: seconds_of(text) if text else None)]
PlainText = Annotated[str, _is("text", _text)]
Disabled = Annotated[str, _is("the reason, as text", _reason)]
FieldTexts = Annotated[dict[str, str], _is("a map of fields", _fields)]


class Keys(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)


class ChangedKeys(Keys):
    run: PlainText = ""
    at: Time = None
    before: Number | None = None
    after: Number | None = None

    def level(self) -> Level | None:
        if self.before is None or self.after is None:
            return None
        return Level(self.run, self.at or 0.0, self.before, self.after)


class AcceptedKeys(Keys):
    run: PlainText = ""
    at: Time = None
    until: Time = None


class WidthKeys(Keys):
    runs: _Count | None = None


class Provenance(Keys):
    """Where a bound comes from, and whether it is in use."""

    runs: _Count | None = None
    figures: _Count | None = None  # values in those runs, where a run gave several; the key is older than the word
    since: Time = None
    width: WidthKeys | None = None
    method: PlainText = ""
    false_alarm: Share | None = None
    measured: PlainText = ""
    floor: Number | None = None
    cap: Cap | None = None
    state: Literal["usable", "recording", "unusable", "disabled"] | None = None
    why: PlainText = ""
    fingerprint: PlainText = ""
    conditions: FieldTexts = {}
    under_test: FieldTexts = {}
    hardware: PlainText = ""
    level: Number | None = None
    left_out: dict[str, object] | None = None  # Seatrial 0.1 listed the runs, others count them
    changed: ChangedKeys | None = None
    accepted: AcceptedKeys | None = None
    reasons: tuple[Any, ...] | None = None


class MetricKeys(Provenance):
    """One metric of a benchmark, in Seatrial's form."""

    lower: Number | None = None
    upper: Number | None = None
    center: Number | None = None
    unit: PlainText = ""
    better: Better | None = None
    disabled: Disabled = ""


class TorchprimeKeys(Keys):
    """A benchmark of torchprime's file. `seatrial` holds what its own keys cannot."""

    name: PlainText = ""
    step_time_lower_bound: Number | None = None
    step_time_upper_bound: Number | None = None
    confidence_interval: Distance | None = None
    average: Number | None = None
    sample_size: _Count | None = None
    target_loss: Number | None = None
    loss_tolerance: Distance | None = None
    disabled: Disabled = ""
    seatrial: Provenance | None = None
