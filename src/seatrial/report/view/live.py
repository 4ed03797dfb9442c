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
    since_s: float = 0.0  # wall time of that

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
    started_s: float | None = None
    last_s: float = 0.0  # wall time of the last line
    finished: str = ""  # its verdict
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)  # of the whole run
    noted: int = -1  # line of the last of them

    @classmethod
    def of(cls, cells: Iterable[PlannedCell]) -> "LiveView":
        return cls({cell.hash: LiveCell(cell.id, cell.hash, cell.trial, cell.axes) for cell in cells})

    def take(self, entry: Mapping[str, Any]) -> None:
        """A line of the journal. What a newer Seatrial writes there and is not known here changes nothing."""
        self.line += 1
        wall_s = entry.get("wall_s")
        self.last_s = float(wall_s) if isinstance(wall_s, int | float) else self.last_s
        cell = self.cells.get(str(entry.get("cell")))
        if cell is None:
            self._of_run(entry)
        elif changed := _changed(cell, entry, self.line, self.last_s):
            self.cells[cell.hash] = changed

    def _of_run(self, entry: Mapping[str, Any]) -> None:
        match entry["event"]:
            case "run":
                self.started_s = self.last_s
                self.noted = self.line
            case "attached":
                self.finished, self.interrupted = "", False
                self._note("taken up again by another process")
            case "interrupted":
                self.interrupted = True
                self._note("interrupted: what runs is brought to its end")
            case "left":
                self._note(f"left behind: {one_line(str(entry.get('why')))[:MOST_WHY]}")
            case "finished":
                self.finished = str(entry.get("verdict"))
                self.noted = self.line

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.noted = self.line

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


def _changed(cell: LiveCell, entry: Mapping[str, Any], line: int, at_s: float) -> LiveCell | None:
    match entry["event"]:
        case "planned":
            again = cell.over and ("confirming" if cell.state in _OUT_OF_BOUNDS else "retrying")
            return _with(
                cell,
                line,
                at_s,
                state=again or "queued",
                attempt=attempt if isinstance(attempt := entry.get("attempt"), int) else 0,
            )
        case "started" | "ready" if not cell.over and cell.state != "running":
            return _with(cell, line, at_s, state="running")
        case "judged":
            verdict = str(entry.get("verdict"))
            verdict = verdict if verdict in VERDICT_WORDS else "invalid"
            return _judged(cell, line, at_s, verdict, str(entry.get("why") or ""))
        case "broken":
            return _judged(cell, line, at_s, "invalid", str(entry.get("why") or ""))
        case "skipped":
            return _with(cell, line, at_s, state="skipped", why=one_line(str(entry.get("why") or ""))[:MOST_WHY])
    return None


def _judged(cell: LiveCell, line: int, at_s: float, verdict: str, why: str) -> LiveCell:
    good = Verdict(verdict).good
    text = one_line(why)[:MOST_WHY] or cell.why if not good else cell.why
    return _with(cell, line, at_s, state=verdict, why=text, failures=cell.failures + (not good))


def _with(cell: LiveCell, line: int, at_s: float, **changes: Any) -> LiveCell:
    return replace(cell, line=line, since_s=at_s, **changes)


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
        self.text = f"{run.cells:,} cell{'' if run.cells == 1 else 's'}" if over else ""
        self.text = self.text or one_line(run.why) or f"{run.done:,} of {run.cells:,} done, {who}"
