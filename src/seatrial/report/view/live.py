"""The state of a run in progress, built from its journal alone.

1. The same journal lines give the same state, in however many steps they are read.
2. Each cell records the line of its last change, so a client that has seen the journal up to some line gets exactly
   the changes since then.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, NamedTuple

import msgspec

from seatrial.job import (
    CELLS_WORST_FIRST,
    AttemptResult,
    Cause,
    CellResult,
    Exit,
    Outcome,
    Place,
    RunResults,
    Verdict,
    worst_cell,
)
from seatrial.job.plan import PlanFile
from seatrial.job.units import count
from seatrial.record import RunOverview, RunState
from seatrial.report.view.words import duration_text, one_line

VERDICT_WORDS = frozenset(verdict.value for verdict in Verdict)
AGAIN = ("retrying", "confirming")
_BAD, _GOOD = ([one.value for one in CELLS_WORST_FIRST if one.good is good] for good in (False, True))
STATES_WORST_FIRST = (*_BAD, *AGAIN, *_GOOD, "running", "queued", "waiting")
_COUNTED = (*(verdict.value for verdict in CELLS_WORST_FIRST), "flaky")
_OUT_OF_BOUNDS = frozenset({"slower", "faster"})
MOST_WHY = 500  # characters


@dataclass(frozen=True)
class LiveCell:
    id: str
    hash: str
    trial: str
    axes: dict[str, str]
    place: Place
    estimate_s: float | None = None
    state: str = "waiting"  # a verdict once it has one
    why: str = ""  # reason of the last bad verdict
    attempt: int = 0
    tried: tuple[AttemptResult, ...] = ()  # attempts that were judged
    began_s: float = 0.0  # wall time of the last change to `running`
    line: int = -1  # journal line of the last change

    @property
    def over(self) -> bool:
        return self.state in VERDICT_WORDS

    @property
    def bad(self) -> bool:
        """True for a failure that is not retried."""
        return self.over and not Verdict(self.state).good

    @property
    def retried(self) -> bool:
        """Whether it failed and runs again."""
        return not self.over and any(not one.verdict.good for one in self.tried)

    def result(self) -> CellResult:
        """With the verdict of its last attempt while it is retried."""
        verdict = Verdict(self.state) if self.over else self.tried[-1].verdict if self.retried else Verdict.SKIPPED
        named = self.id, self.hash, self.axes, verdict, self.trial
        return CellResult(*named, why=self.why if not verdict.good else "", attempts=list(self.tried))


FindCauses = Callable[[Sequence[CellResult]], list[Cause]]


@dataclass
class LiveView:
    """A run in progress."""

    plan: PlanFile
    cells: dict[str, LiveCell] = field(default_factory=dict)  # by hash
    line: int = -1  # the last line read
    finished: str = ""  # its verdict
    notes: list[str] = field(default_factory=list)  # of the whole run
    began_s: float = 0.0  # wall times of the first and the last line
    now_s: float = 0.0
    _causes: tuple[int, list[Cause]] = field(default_factory=lambda: (-1, []))  # with the line they were found at

    def __post_init__(self) -> None:
        for cell in self.plan.cells:
            place = Place(cell.target, cell.machine)
            self.cells[cell.hash] = LiveCell(cell.id, cell.hash, cell.trial, cell.axes, place, cell.estimate_s)
        known = {cell.id: cell.estimate_s for cell in self.plan.cells if cell.estimate_s is not None}
        self.tally = Tally((cell.id for cell in self.plan.cells), known)

    def take(self, entry: Mapping[str, Any]) -> None:
        """Applies a line of the journal. Unknown events, of a newer Seatrial, are ignored."""
        self.line += 1
        self.now_s = float(entry.get("wall_s") or 0.0)
        self.began_s = self.began_s or self.now_s
        cell = self.cells.get(str(entry.get("cell")))
        if cell is not None:
            self.cells[cell.hash] = changed = _changed(cell, entry, self.line)
            if changed is not cell:
                self.tally.take(cell.id, changed.state, changed.why, self.now_s)
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
        bad, again = (sum(getattr(cell, name) for cell in self.cells.values()) for name in ("bad", "retried"))
        parts = [f"{number:,} {word}" for number, word in ((bad, "failed"), (again, "to retry")) if number]
        head = f"{self.done:,} of {count(len(self.cells), 'cell')} done"
        return f"{head}: {', '.join(parts)}" if parts else head

    @property
    def running(self) -> list[LiveCell]:
        """Longest first."""
        found = (cell for cell in self.cells.values() if cell.state == "running")
        return sorted(found, key=lambda cell: (cell.began_s, cell.line))

    @property
    def left_s(self) -> float | None:
        """Estimated at the last line, so that the same journal gives the same page."""
        return self.tally.left_s(self.now_s) if self.done < len(self.cells) else None

    @property
    def states(self) -> dict[str, str]:
        """The states of cells without a verdict, by hash."""
        return {cell.hash: cell.state for cell in self.cells.values() if not cell.over}

    def causes(self, find_causes: FindCauses) -> list[Cause]:
        """The causes so far, of the same lines found once."""
        if self._causes[0] != self.line:
            self._causes = self.line, find_causes([cell.result() for cell in self.cells.values()])
        return self._causes[1]

    def results(self, run: str, find_causes: FindCauses) -> RunResults:
        """The results so far. Cells without a verdict are `skipped`, or have the failure that is retried."""
        cells, suite, plan = [cell.result() for cell in self.cells.values()], self.plan.suite, self.plan
        return RunResults(
            1,
            run,
            suite.name,
            worst_cell(cell.verdict for cell in cells),
            cells,
            plan.excluded,
            self.causes(find_causes),
            suite.path or "",
            self.began_s,
            self.now_s - self.began_s,
            seatrial=plan.seatrial,
            commit=plan.options.commit,
            target=suite.target,
            overrides=list(suite.overrides),
            axes=plan.axes,
        )


def _changed(cell: LiveCell, entry: Mapping[str, Any], line: int) -> LiveCell:
    match entry["event"]:
        case "planned":
            again = cell.state if cell.state in AGAIN else ""
            if cell.over:  # a journal of an earlier version does not say that it is retried
                again = "confirming" if cell.state in _OUT_OF_BOUNDS else "retrying"
            attempt = entry.get("attempt")
            number = attempt if isinstance(attempt, int) else 0
            return replace(cell, line=line, state=again or "queued", attempt=number)
        case "started" | "ready" if not cell.over and cell.state != "running":
            return replace(cell, line=line, state="running", began_s=float(entry.get("wall_s") or 0.0))
        case "skipped":
            return replace(cell, line=line, state="skipped", why=_why(entry))
        case "judged" | "broken":  # `broken` has no verdict
            verdict = str(entry.get("verdict"))
            verdict = verdict if verdict in VERDICT_WORDS else "invalid"
            again = str(entry.get("again") or "")
            state = again if again in AGAIN else verdict
            good, seconds = Verdict(verdict).good, entry.get("seconds")
            why = "" if good else _why(entry)
            made = AttemptResult(cell.attempt or 1, cell.place, [], Exit(Outcome.EXITED), Verdict(verdict), why, why)
            if isinstance(seconds, float):
                made = msgspec.structs.replace(made, seconds=seconds)
            return replace(cell, line=line, state=state, why=why or cell.why, tried=(*cell.tried, made))
    return cell


def _why(entry: Mapping[str, Any]) -> str:
    return one_line(str(entry.get("headline") or entry.get("why") or ""))[:MOST_WHY]


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
        self._began_s = math.inf

    def take(self, cell: str, state: str, progress: str, at_s: float) -> None:
        """Applies a change of a cell. Its time restarts when it starts running, so queueing does not count."""
        self.state[cell] = state
        if state == "running":
            self._began_s = min(self._began_s, at_s)
        progress = one_line(progress)
        if state not in VERDICT_WORDS and state not in AGAIN:
            before = self.running.get(cell)
            if before is None or state == "starting" or (state == "running" and before.waits):
                before = Running(at_s, "", waits=True)
            self.running[cell] = Running(before.began_s, progress or before.doing or state, state != "running")
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
        """Estimated remaining time, with as many cells at once as on average so far. A cell counts with its earlier
        duration, else with the mean of this run; None if no duration is known, or nothing has run yet."""
        took = [took_s for took_s in self.ended.values() if took_s is not None]
        known = took or [*self._expected.values()]
        active = [now_s - running.began_s for running in self.running.values() if not running.waits]
        busy_s = sum(took) + sum(active)
        if not known or busy_s <= 0:
            return None
        usual, rest = fmean(known), [0.0]
        for cell, state in self.state.items():
            if state not in VERDICT_WORDS:
                running = self.running.get(cell)
                had_s = now_s - running.began_s if running and not running.waits else 0.0
                rest.append(max(0.0, self._expected.get(cell, usual) - had_s))
        return max(*rest, sum(rest) * min(1.0, (now_s - self._began_s) / busy_s))


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
