"""The state of a run in progress, built from its journal alone.

1. The same journal lines give the same state, in however many steps they are read.
2. Each cell records the line of its last change, so a client that has seen the journal up to some line gets exactly
   the changes since then.
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
    state: str = "waiting"  # a verdict once it has one
    why: str = ""  # reason of the last bad verdict
    attempt: int = 0
    failures: int = 0  # attempts that were not good
    line: int = -1  # journal line of the last change

    @property
    def over(self) -> bool:
        return self.state in VERDICT_WORDS

    @property
    def bad(self) -> bool:
        """True from the first failure on, also during retries."""
        return not Verdict(self.state).good if self.over else self.failures > 0


@dataclass
class LiveView:
    """A run in progress."""

    cells: dict[str, LiveCell]  # by hash
    line: int = -1  # the last line read
    finished: str = ""  # its verdict
    notes: list[str] = field(default_factory=list)  # of the whole run

    @classmethod
    def of(cls, cells: Iterable[PlannedCell]) -> "LiveView":
        return cls({cell.hash: LiveCell(cell.id, cell.hash, cell.trial, cell.axes) for cell in cells})

    def take(self, entry: Mapping[str, Any]) -> None:
        """Applies a line of the journal. Unknown events, of a newer Seatrial, are ignored."""
        self.line += 1
        cell = self.cells.get(str(entry.get("cell")))
        if cell is not None:
            self.cells[cell.hash] = _changed(cell, entry, self.line)
            return
        match entry["event"]:
            case "attached":
                self.finished = ""
                self.notes.append("resumed by another process")
            case "interrupted":
                self.notes.append("interrupted: stopping jobs")
            case "left":
                self.notes.append(f"left behind: {_why(entry)}")
            case "finished":
                self.finished = str(entry.get("verdict"))

    def changed_since(self, line: int) -> list[LiveCell]:
        """Cells that changed after this line."""
        return [cell for cell in self.cells.values() if cell.line > line]

    @property
    def counts(self) -> list[tuple[str, int]]:
        """Number of cells by state, worst first."""
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
        """Bad cells, latest change first."""
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
        case "judged" | "broken":  # `broken` has no verdict
            verdict = str(entry.get("verdict"))
            verdict = verdict if verdict in VERDICT_WORDS else "invalid"
            if Verdict(verdict).good:
                return replace(cell, line=line, state=verdict)
            return replace(cell, line=line, state=verdict, why=_why(entry) or cell.why, failures=cell.failures + 1)
    return cell


def _why(entry: Mapping[str, Any]) -> str:
    return one_line(str(entry.get("why") or ""))[:MOST_WHY]


# Progress of a run: what is running and since when, what failed and why, how much time is left.


class Running(NamedTuple):
    began_s: float
    doing: str
    waits: bool


class Tally:
    """`expected` maps cell ids to earlier durations in seconds. Times are of `time.monotonic`."""

    def __init__(self, cells: Iterable[str], expected: Mapping[str, float] | None = None) -> None:
        self.state: dict[str, str] = dict.fromkeys(cells, "waiting")
        self.running: dict[str, Running] = {}  # including queued cells
        self.ended: dict[str, float | None] = {}  # duration in seconds
        self.failed: dict[str, str] = {}  # reason by cell, latest last; including cells being retried
        self._expected = dict(expected or {})
        self._most_at_once = 1

    def take(self, cell: str, state: str, progress: str, at_s: float) -> None:
        """Applies a change of a cell. Its time restarts when it starts running, so queueing does not count."""
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
        """Failed cells that are being retried."""
        return [cell for cell in self.failed if self.state[cell] not in VERDICT_WORDS]

    def left_s(self, now_s: float) -> float | None:
        """Estimated remaining time, from earlier durations and the parallelism so far. Cells without an earlier
        duration count with the median; None if no duration is known."""
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
    """Converts a wall time to this process's monotonic clock."""
    return time.monotonic() - (time.time() - wall_s)


class RunLine:
    """A run as one line of a list."""

    def __init__(self, run: RunOverview) -> None:
        over = run.state is RunState.FINISHED
        self.run, self.at_s, self.done = run.run, run.started_s, run.done
        self.state = run.verdict if over else run.state.value
        self.took = duration_text(run.seconds)
        self.counts = [(word, number) for word in _COUNTED if (number := run.counts.get(word, 0))]
        self.total = run.cells if run.state in (RunState.RUNNING, RunState.UNFINISHED) else 0
        who = f"process {run.owner.pid} on {one_line(run.owner.host)}" if run.owner else "interrupted"
        so_far = one_line(run.why) or f"{run.done:,} of {run.cells:,} done, {who}"
        self.text = count(run.cells, "cell") if over else so_far
