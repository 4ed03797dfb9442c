"""Between which figures one new run is in order, and where that comes from."""

from enum import StrEnum
from typing import Literal

import msgspec

Better = Literal["lower", "higher"]


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
    fingerprint: str = ""  # of what it was made from; empty: not known, and so not compared
    changed: Level | None = None
    source: str = ""  # where it stands: file:line
    figures: int = 0  # in those runs, where one gave several; 0: one of each
    width_runs: int | None = (
        None  # of a moved one: `runs` are of its center, the width is of so many before; 0: by hand
    )
