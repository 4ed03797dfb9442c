"""What a file of bounds says: an entry for each figure of each benchmark."""

from datetime import UTC, datetime

import msgspec

from seatrial.job import Bound, BoundState

OURS = "seatrial"
THEIRS = "torchprime"
STEP_TIME = "step_time"  # the one figure that torchprime's file has bounds for
FLOOR = 0.015  # half-width, as a share of the center, below which no bound goes
CAP = 0.2  # half-width, as a share of the center, above which a bound finds too little to be of use


_LOSS = "loss"  # the figure of a training trial


class BaselineEntry(msgspec.Struct, frozen=True):
    """One figure of one benchmark. `bound` is what a run is judged by; the rest says where that comes from."""

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
    left_out: dict[str, int] = {}  # reason -> figures that its bounds are not made from
    accepted: str = ""  # the run from which on a new level was accepted
    accepted_s: float | None = None
    accepted_until_s: float | None = None  # when the last run started that was looked at then
    reasons: tuple[dict[str, str], ...] = ()  # of every change: at, what, why
    invented: tuple[int, ...] = ()  # lines with a comment which says that the numbers are
    target_loss: float | None = None  # of torchprime's file: a bound of its own, for the last loss
    loss_tolerance: float | None = None

    @property
    def half_width(self) -> float | None:
        """As a share of the center; None when a side is open, or the center is zero."""
        return relative_half_width(self.bound)

    def bounds(self) -> tuple[Bound, ...]:
        """Its own, and where torchprime's file has a target for the last loss, one for that."""
        target, tolerance = self.target_loss, self.loss_tolerance
        if target is None or tolerance is None:
            return (self.bound,)
        off = self.bound.state is BoundState.DISABLED
        loss = Bound(
            _LOSS,
            target - tolerance,
            target + tolerance,
            better=None,
            center=target,
            state=BoundState.DISABLED if off else BoundState.USABLE,
            why=self.bound.why if off else "",
            source=self.bound.source,
        )
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
