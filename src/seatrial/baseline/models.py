"""Contents of a baseline file, in Seatrial's or torchprime's form. Unknown keys are kept."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from seatrial.job import Better, Bound, BoundState, Level, flat_fields
from seatrial.suite.yaml.problem import describe

OURS = "seatrial"
THEIRS = "torchprime"
STEP_TIME = "step_time"  # the only metric with bounds in torchprime's file
FLOOR = 0.015  # minimum half-width, as a share of the center
CAP = 0.2  # maximum half-width, as a share of the center; wider bounds find too little


def relative_half_width(bound: Bound) -> float | None:
    """Half-width as a share of the center; None if a side is open or the center is zero."""
    if bound.lower is None or bound.upper is None:
        return None
    center = bound.center if bound.center is not None else (bound.lower + bound.upper) / 2
    return (bound.upper - bound.lower) / 2 / abs(center) if center else None


def seconds_of(text: str) -> float:
    """Wall-clock seconds of `2026-10-03` or `2026-10-03T12:00:00Z` (default UTC). Raises ValueError."""
    time = datetime.fromisoformat(text.strip())
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def text_of(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# Keys that are read as text even if YAML takes the value for a number (such as hex digits without a letter).
TEXT_KEYS = frozenset(
    {"unit", "method", "measured", "why", "fingerprint", "hardware", "since", "at", "until", "run", "name"}
)


def _within(allowed: Callable[[float], bool], what: str) -> AfterValidator:
    def check(number: float, info: ValidationInfo) -> float:
        if not allowed(number):
            raise ValueError(f"invalid `{info.field_name}`: expected {what}, got {number:g}")
        return number

    return AfterValidator(check)


def _is(what: str, made: Callable[[Any], Any]) -> BeforeValidator:
    """Converts a value with `made`; the error names `what` was expected."""

    def check(value: Any, info: ValidationInfo) -> Any:
        try:
            return made(value)
        except (ValueError, OverflowError, TypeError, AttributeError):
            raise ValueError(f"invalid `{info.field_name}`: expected {what}, got {describe(value)}") from None

    return BeforeValidator(check)


def _reason(value: Any) -> str:
    """A non-empty text."""
    if not value.strip():
        raise ValueError
    return str(value)


def _counts(value: Any) -> Any:
    if not isinstance(value, dict):
        return value or {}
    return {why: len(of) if isinstance(of, list) else of if isinstance(of, int) else 1 for why, of in value.items()}


def _texts(value: Any) -> Any:
    if not isinstance(value, list):
        return value or ()
    return [{key: str(text) for key, text in one.items()} for one in value if isinstance(one, dict)]


def _fields(value: Any) -> dict[str, str]:
    """Numbers and lists become text, for comparison with the text used elsewhere."""
    if value is not None and not isinstance(value, dict):
        raise TypeError
    return dict(flat_fields(value or {}, ""))


Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Cap = Annotated[Number, _within(lambda number: number > 0, "more than 0")]
Share = Annotated[Cap, _within(lambda number: number < 1, "a share of all good runs, less than 1")]
_Count = Annotated[
    int,
    Field(strict=True),
    _within(lambda number: number >= 0, "a whole number of runs"),
    BeforeValidator(lambda number: int(number) if isinstance(number, float) and number.is_integer() else number),
]
Distance = Annotated[Number, _within(lambda number: number >= 0, "a distance of 0 or more")]
Time = Annotated[float | None, _is("a time like 2026-10-03T12:00:00Z", lambda text: seconds_of(text) if text else None)]
PlainText = Annotated[str, Field(strict=True), BeforeValidator(lambda text: "" if text is None else text)]
Disabled = Annotated[str, _is("the reason, as text", _reason)]
# Reason -> number of values left out of the bounds. Seatrial 0.1 wrote lists of runs.
LeftOut = Annotated[dict[str, Any], BeforeValidator(_counts)]
# For each change: at, what, why.
Reasons = Annotated[tuple[dict[str, str], ...], BeforeValidator(_texts)]
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
    """A level that `baseline recenter` accepted."""

    run: PlainText = ""  # its first run
    at: Time = None
    until: Time = None  # start of the last run considered then


class WidthKeys(Keys):
    runs: _Count | None = None


class Provenance(Keys):
    """Provenance and state of a bound."""

    runs: _Count | None = None
    figures: _Count | None = None  # values in those runs, if a run has several; an old name of values
    since: Time = None
    width: WidthKeys | None = None
    method: PlainText = ""
    false_alarm: Share | None = None
    measured: PlainText = ""
    floor: Number | None = None  # None: the default, as for `cap`
    cap: Cap | None = None
    state: Literal["usable", "recording", "unusable", "disabled"] | None = None
    why: PlainText = ""
    fingerprint: PlainText = ""
    conditions: FieldTexts = {}
    under_test: FieldTexts = {}
    hardware: PlainText = ""
    level: Number | None = None  # best center so far, if it was better than today's; None: today's
    left_out: LeftOut = {}
    changed: ChangedKeys | None = None
    accepted: AcceptedKeys | None = None
    reasons: Reasons = ()


class MetricKeys(Provenance):
    """One metric of a benchmark, in Seatrial's form."""

    lower: Number | None = None
    upper: Number | None = None
    center: Number | None = None
    unit: PlainText = ""
    better: Better | None = None
    disabled: Disabled = ""


class TorchprimeKeys(Keys):
    """A benchmark in torchprime's file. `seatrial` has the keys that torchprime does not know."""

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


class BaselineEntry(msgspec.Struct, frozen=True):
    """One metric of one benchmark. Runs are checked against `bound`; `keys` has its provenance."""

    benchmark: str
    metric: str
    bound: Bound
    line: int
    keys: Provenance
    title: str = ""  # display name of the benchmark
    invented: tuple[int, ...] = ()  # lines of comments that mark numbers as invented
    target_loss: float | None = None  # torchprime only: an extra bound for the final loss
    loss_tolerance: float | None = None

    def bounds(self) -> tuple[Bound, ...]:
        """The bound, and one for the final loss if torchprime's file has a target."""
        target, tolerance = self.target_loss, self.loss_tolerance
        if target is None or tolerance is None:
            return (self.bound,)
        # "loss" is the metric of a training trial.
        loss = Bound("loss", target - tolerance, target + tolerance, None, center=target, source=self.bound.source)
        if self.bound.state is BoundState.DISABLED:
            loss = msgspec.structs.replace(loss, state=BoundState.DISABLED, why=self.bound.why)
        return (self.bound, loss)


class Baselines(msgspec.Struct, frozen=True):
    """A baseline file. `form` is OURS or THEIRS; each of `warnings` starts with file:line:column."""

    file: str
    form: str = OURS
    entries: dict[str, dict[str, BaselineEntry]] = {}  # benchmark -> metric -> entry
    warnings: tuple[str, ...] = ()

    def bounds(self, benchmark: str) -> tuple[Bound, ...]:
        """The bounds of a benchmark, including disabled ones."""
        return tuple(bound for entry in self.entries.get(benchmark, {}).values() for bound in entry.bounds())
