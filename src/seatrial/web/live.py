"""What is known of a run while it goes on, from nothing but the lines of its journal.

1. The same lines give the same state, whoever reads them and in however many steps.
2. Of each cell it is known at which line it last changed. So whoever has seen the lines up to one of them is told just
   what is different since, however much or little that is, and is then where everybody is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seatrial.job import Verdict
from seatrial.record import PlannedCell
from seatrial.report.text import one_line

_VERDICTS = frozenset(verdict.value for verdict in Verdict)
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
        return self.state in _VERDICTS

    @property
    def bad(self) -> bool:
        """It counts from its first failure on, also while it is tried again."""
        return not Verdict(self.state).good if self.over else self.failures > 0


@dataclass
class LiveRun:
    cells: dict[str, LiveCell]  # by hash
    line: int = -1  # the last that was read
    started_s: float | None = None
    last_s: float = 0.0  # wall time of the last line
    finished: str = ""  # its verdict
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)  # of the whole run
    noted: int = -1  # line of the last of them

    @classmethod
    def of(cls, cells: Iterable[PlannedCell]) -> "LiveRun":
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

    def counts(self) -> dict[str, int]:
        """Cells by what they are now; those that failed and are tried again are in `failing`, too."""
        found: dict[str, int] = {}
        for cell in self.cells.values():
            found[cell.state] = found.get(cell.state, 0) + 1
            if cell.bad and not cell.over:
                found["failing"] = found.get("failing", 0) + 1
        return found

    @property
    def failing(self) -> list[LiveCell]:
        """The latest first."""
        return sorted((cell for cell in self.cells.values() if cell.bad), key=lambda cell: (-cell.line, cell.hash))


def _changed(cell: LiveCell, entry: Mapping[str, Any], line: int, at_s: float) -> LiveCell | None:
    match entry["event"]:
        case "meant":
            again = cell.over and ("confirming" if cell.state in _OUT_OF_BOUNDS else "retrying")
            return _with(cell, line, at_s, state=again or "queued", attempt=_number(entry))
        case "started" | "ready" if not cell.over and cell.state != "running":
            return _with(cell, line, at_s, state="running")
        case "judged":
            verdict = str(entry.get("verdict"))
            verdict = verdict if verdict in _VERDICTS else "invalid"
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
    from dataclasses import replace

    return replace(cell, line=line, since_s=at_s, **changes)


def _number(entry: Mapping[str, Any]) -> int:
    number = entry.get("attempt")
    return number if isinstance(number, int) else 0
