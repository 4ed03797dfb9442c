"""Between which figures one new run is in order, and where that comes from."""

from enum import StrEnum
from typing import Literal

import msgspec

from seatrial.job.settings import Settings, differences_text, other_conditions

Better = Literal["lower", "higher"]


class FixedBound(msgspec.Struct, frozen=True):
    """A bound that a person wrote, of one figure: `ttft.p99: 500ms`, `failed: 0`."""

    figure: str
    part: str  # p99 and the like; empty for what is one number
    operator: str  # <=, >=, <, >
    value: float
    text: str  # as it was written

    @property
    def name(self) -> str:
        return f"{self.figure}.{self.part}" if self.part else self.figure

    def met_by(self, value: float) -> bool:
        compare = {"<=": value <= self.value, ">=": value >= self.value, "<": value < self.value}
        return compare.get(self.operator, value > self.value)


class BoundState(StrEnum):
    USABLE = "usable"
    RECORDING = "recording"  # too few runs so far: figures are kept, not judged
    UNUSABLE = "unusable"  # so wide that it would find nothing
    DISABLED = "disabled"  # switched off by hand, with a reason


class Level(msgspec.Struct, frozen=True):
    """The last change of the level that a figure had before: the first run after it, and both levels."""

    run: str
    at_s: float
    before: float
    after: float


class Bound(msgspec.Struct, frozen=True):
    """A bound for one figure of one cell. A side that is None is open."""

    metric: str
    lower: float | None = None
    upper: float | None = None
    better: Better | None = "lower"  # None: neither side is, and out of it is a failure
    unit: str = ""
    center: float | None = None
    runs: int = 0  # that it was made from
    since_s: float | None = None  # wall time of the first of them
    false_alarm: float | None = None  # the share of single good runs with normal noise that would be out of it
    state: BoundState = BoundState.USABLE
    why: str = ""  # of a state that is not usable
    fingerprint: str = ""  # of the conditions that it was made under; empty: not known, and so not compared
    changed: Level | None = None
    source: str = ""  # where it stands: file:line
    figures: int = 0  # in those runs, where one gave several; 0: one of each
    width_runs: int | None = (
        None  # of a moved one: `runs` are of its center, the width is of so many before; 0: by hand
    )
    conditions: dict[str, str] = {}  # that it was made under
    under_test: dict[str, str] = {}  # in the newest run that it is made from

    @property
    def settings(self) -> Settings:
        return Settings(self.conditions, self.under_test)

    def why_not_for(self, settings: Settings) -> str:
        """Why a figure that was taken with these settings cannot be judged by it; empty when it can."""
        if not self.fingerprint or self.fingerprint in (settings.fingerprint, settings.former):
            return ""
        if not self.conditions:
            return (
                "the bounds are of other conditions, or of Seatrial 0.1 and another configuration; they have only the "
                f"fingerprint {self.fingerprint}, so which ones is not known"
            )
        other = other_conditions(self.settings, settings)
        return f"the bounds are of other conditions: {differences_text(other)}" if other else ""
