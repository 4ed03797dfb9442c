"""What every change of an entry has: who asked for it and why, what came of it, or that it was refused."""

from dataclasses import dataclass

from seatrial.suite.baseline import Edit
from seatrial.suite.baseline.entry import text_of


class Refused(Exception):
    """An entry stays as it is, and why."""


@dataclass(frozen=True)
class Updated:
    """A change of one entry, and what is worth knowing about it."""

    edit: Edit
    notes: tuple[str, ...] = ()
    accepted: str = ""  # the first run of the level that it accepts


@dataclass(frozen=True)
class Why:
    """Who changes an entry: when, and for what reason; `force` allows bounds wider than the cap."""

    reason: str
    at_s: float
    force: bool = False

    def of(self, what: str) -> dict[str, str]:
        return {"at": text_of(self.at_s), "what": what, "why": self.reason}
