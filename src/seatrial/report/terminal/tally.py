"""What is known of the cells of a run while it goes on: which run and since when, what failed and why, how long it will
still take."""

import time
from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple

from seatrial.job import Verdict
from seatrial.report.text import one_line

VERDICT_WORDS = frozenset(verdict.value for verdict in Verdict)
AGAIN = ("retrying", "confirming")


class Running(NamedTuple):
    began_s: float
    doing: str
    waits: bool


class Tally:
    """`expected` is by cell id: the seconds that it took before. Times are of `time.monotonic`."""

    def __init__(self, cells: Iterable[str], expected: Mapping[str, float] | None = None) -> None:
        self.state: dict[str, str] = dict.fromkeys(cells, "waiting")
        self.running: dict[str, Running] = {}  # also those that wait for a place
        self.ended: dict[str, float | None] = {}  # the seconds that each had
        self.failed: dict[str, str] = {}  # why, by cell; the last at the end; also those that are tried again
        self.again: set[str] = set()  # of them, those that have no verdict yet
        self._expected = dict(expected or {})
        self._most_at_once = 1

    def take(self, cell: str, state: str, progress: str, at_s: float) -> None:
        """A change of a cell. It counts anew when it runs: what came before is not its own."""
        self.state[cell] = state
        if state in VERDICT_WORDS:
            began = self.running.pop(cell, None)
            if began is not None or cell not in self.ended:
                self.ended[cell] = at_s - began.began_s if began else None
            self.again.discard(cell)
            self.failed.pop(cell, None)
            if not Verdict(state).good:
                self.failed[cell] = one_line(progress)
        elif state in AGAIN:
            self.running.pop(cell, None)
            self.again.add(cell)
            self.failed.pop(cell, None)
            self.failed[cell] = one_line(progress)
        else:
            self._run(cell, state, one_line(progress), at_s)

    def _run(self, cell: str, state: str, progress: str, at_s: float) -> None:
        before = self.running.get(cell)
        begins = before is None or state == "starting" or (state == "running" and before.waits)
        began_s = at_s if begins or before is None else before.began_s
        doing = progress or (before.doing if before is not None and not begins else "") or state
        self.running[cell] = Running(began_s, doing, state != "running")
        self._most_at_once = max(self._most_at_once, len(self.running))

    def left_s(self, now_s: float) -> float | None:
        """How long the rest takes if cells take as long as before, as many at a time as were so far. A cell that was
        never run before is taken for an ordinary one; None when nothing is known of any."""
        known = [*self._expected.values(), *(took for took in self.ended.values() if took is not None)]
        if not known:
            return None
        usual = median(known)
        rest = []
        for cell, state in self.state.items():
            if state not in VERDICT_WORDS:
                running = self.running.get(cell)
                had_s = now_s - running.began_s if running and not running.waits else 0.0
                rest.append(max(0.0, self._expected.get(cell, usual) - had_s))
        return max([0.0, *rest, sum(rest) / min(self._most_at_once, max(1, len(rest)))])


def monotonic_of(wall_s: float) -> float:
    """A wall time, of another process, on this one's monotonic clock."""
    return time.monotonic() - (time.time() - wall_s)
