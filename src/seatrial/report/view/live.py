"""What is known of a run while it goes on, from nothing but the lines of its journal.

1. The same lines give the same state, whoever reads them and in however many steps.
2. Of each cell it is known at which line it last changed. So whoever has seen the lines up to one of them is told just
   what is different since, however much or little that is, and is then where everybody is.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, NamedTuple

from seatrial.job import CELLS_WORST_FIRST, Verdict
from seatrial.job.plan import PlannedCell
from seatrial.job.units import count
from seatrial.record import RunOverview, RunState
from seatrial.report.view.words import duration_text, one_line

VERDICT_WORDS = frozenset(verdict.value for verdict in Verdict)
AGAIN = ("retrying", "confirming")
STATES_WORST_FIRST = (*(verdict.value for verdict in CELLS_WORST_FIRST), "running", *AGAIN, "queued", "waiting")
_COUNTED = (*(verdict.value for verdict in CELLS_WORST_FIRST), "flaky")
_OUT_OF_BOUNDS = frozenset({"slower", "faster"})
MOST_WHY = 500  # characters


@dataclass(frozen=True)
class LiveCell:
    id: str
    hash: str
    trial: str
    axes: dict[str, str]
    state: str = "waiting"  # a verdict when it came to one
    why: str = ""  # of the last verdict that was not good
    attempt: int = 0
    failures: int = 0  # attempts that were not good
    line: int = -1  # at which it last changed

    @property
    def over(self) -> bool:
        return self.state in VERDICT_WORDS

    @property
    def bad(self) -> bool:
        """It counts from its first failure on, also while it is tried again."""
        return not Verdict(self.state).good if self.over else self.failures > 0


@dataclass
class LiveView:
    """A run that goes on, from the lines of its journal."""

    cells: dict[str, LiveCell]  # by hash
    line: int = -1  # the last that was read
    finished: str = ""  # its verdict
    notes: list[str] = field(default_factory=list)  # of the whole run

    @classmethod
    def of(cls, cells: Iterable[PlannedCell]) -> "LiveView":
        return cls({cell.hash: LiveCell(cell.id, cell.hash, cell.trial, cell.axes) for cell in cells})

    def take(self, entry: Mapping[str, Any]) -> None:
        """A line of the journal. What a newer Seatrial writes there and is not known here changes nothing."""
        self.line += 1
        cell = self.cells.get(str(entry.get("cell")))
        if cell is not None:
            self.cells[cell.hash] = _changed(cell, entry, self.line)
            return
        match entry["event"]:
            case "attached":
                self.finished = ""
                self.notes.append("taken up again by another process")
            case "interrupted":
                self.notes.append("interrupted: what runs is brought to its end")
            case "left":
                self.notes.append(f"left behind: {_why(entry)}")
            case "finished":
                self.finished = str(entry.get("verdict"))

    def changed_since(self, line: int) -> list[LiveCell]:
        """Cells that changed after this line."""
        return [cell for cell in self.cells.values() if cell.line > line]

    @property
    def counts(self) -> list[tuple[str, int]]:
        """Cells by what they are now, worst first."""
        found = Counter(cell.state for cell in self.cells.values())
        return [(state, found[state]) for state in STATES_WORST_FIRST if found[state]]

    @property
    def done(self) -> int:
        return sum(cell.over for cell in self.cells.values())

    @property
    def sentence(self) -> str:
        text = f"{self.done:,} of {count(len(self.cells), 'cell')} done"
        return f"{text}, {len(self.failing):,} failing" if self.failing else text

    @property
    def failing(self) -> list[LiveCell]:
        """The latest first."""
        return sorted((cell for cell in self.cells.values() if cell.bad), key=lambda cell: (-cell.line, cell.hash))


def _changed(cell: LiveCell, entry: Mapping[str, Any], line: int) -> LiveCell:
    match entry["event"]:
        case "planned":
            again = cell.over and ("confirming" if cell.state in _OUT_OF_BOUNDS else "retrying")
            attempt = entry.get("attempt")
            number = attempt if isinstance(attempt, int) else 0
            return replace(cell, line=line, state=again or "queued", attempt=number)
        case "started" | "ready" if not cell.over and cell.state != "running":
            return replace(cell, line=line, state="running")
        case "skipped":
            return replace(cell, line=line, state="skipped", why=_why(entry))
        case "judged" | "broken":  # what is broken has no verdict
            verdict = str(entry.get("verdict"))
            verdict = verdict if verdict in VERDICT_WORDS else "invalid"
            if Verdict(verdict).good:
                return replace(cell, line=line, state=verdict)
            return replace(cell, line=line, state=verdict, why=_why(entry) or cell.why, failures=cell.failures + 1)
    return cell


def _why(entry: Mapping[str, Any]) -> str:
    return one_line(str(entry.get("why") or ""))[:MOST_WHY]


# What is known of the cells of a run while it goes on: which run and since when, what failed and why, how long it will
# still take.


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
        self._expected = dict(expected or {})
        self._most_at_once = 1

    def take(self, cell: str, state: str, progress: str, at_s: float) -> None:
        """A change of a cell. It counts anew when it runs: what came before is not its own."""
        self.state[cell] = state
        progress = one_line(progress)
        if state not in VERDICT_WORDS and state not in AGAIN:
            before = self.running.get(cell)
            if before is None or state == "starting" or (state == "running" and before.waits):
                before = Running(at_s, "", waits=True)
            self.running[cell] = Running(before.began_s, progress or before.doing or state, state != "running")
            self._most_at_once = max(self._most_at_once, len(self.running))
            return
        began = self.running.pop(cell, None)
        self.failed.pop(cell, None)
        if state in AGAIN or not Verdict(state).good:
            self.failed[cell] = progress
        if state in VERDICT_WORDS and (began is not None or cell not in self.ended):
            self.ended[cell] = at_s - began.began_s if began else None

    @property
    def again(self) -> list[str]:
        """Cells that failed and are tried again."""
        return [cell for cell in self.failed if self.state[cell] not in VERDICT_WORDS]

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


class RunLine:
    """A run of a folder in one line."""

    def __init__(self, run: RunOverview) -> None:
        over = run.state is RunState.FINISHED
        self.run, self.at_s, self.done = run.run, run.started_s, run.done
        self.state = run.verdict if over else run.state.value
        self.took = duration_text(run.seconds)
        self.counts = [(word, number) for word in _COUNTED if (number := run.counts.get(word, 0))]
        self.total = run.cells if run.state in (RunState.RUNNING, RunState.UNFINISHED) else 0
        who = f"process {run.owner.pid} on {one_line(run.owner.host)}" if run.owner else "nobody works on it"
        so_far = one_line(run.why) or f"{run.done:,} of {run.cells:,} done, {who}"
        self.text = count(run.cells, "cell") if over else so_far
