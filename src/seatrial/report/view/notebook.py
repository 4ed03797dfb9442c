"""The notebook cells in each pass, from the agent's notes.

Notes come from a run folder and are not trusted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from seatrial.job import ObservedStep
from seatrial.report.view.plot import number_of
from seatrial.report.view.words import one_line

_MOST_CELLS = 120


@dataclass(frozen=True)
class NotebookCell:
    """One notebook cell in one pass."""

    source: str
    state: str  # passed, failed, skipped, or invalid if the note has none of these
    class_: str
    error: str
    seconds: float | None
    peak_memory_bytes: float | None
    gpu_peak_memory_bytes: float | None


@dataclass
class NotebookPass:
    name: str
    state: str = "invalid"  # like a cell's; invalid until the pass ends
    seconds: float | None = None
    cells: dict[int, NotebookCell] = field(default_factory=dict)


@dataclass(frozen=True)
class NotebookView:
    """A table with a row per notebook cell and a column per pass."""

    step: str
    path: str
    passes: list[NotebookPass]

    @cached_property
    def by_number(self) -> dict[int, list[NotebookCell]]:
        """Each notebook cell in the passes that reached it."""
        numbers = sorted({number for one in self.passes for number in one.cells})
        return {number: [one.cells[number] for one in self.passes if number in one.cells] for number in numbers}

    @cached_property
    def shown(self) -> list[int]:
        """At most _MOST_CELLS notebook cells: those that did not pass, then the slowest."""

        def weight(number: int) -> tuple[bool, float]:
            cells = self.by_number[number]
            return all(cell.state == "passed" for cell in cells), -max(cell.seconds or 0.0 for cell in cells)

        return sorted(sorted(self.by_number, key=weight)[:_MOST_CELLS])

    @cached_property
    def longest_s(self) -> float:
        return max((cell.seconds or 0.0 for cells in self.by_number.values() for cell in cells), default=0.0)


def notebook_view(step: ObservedStep) -> NotebookView:
    passes: dict[str, NotebookPass] = {}
    for note in step.notes:
        name, number = note.get("pass"), note.get("cell")
        if not isinstance(name, str):
            continue
        found = passes.setdefault(name, NotebookPass(name))
        if note.get("note") == "cell" and isinstance(number, int):
            found.cells[number] = _cell(note)
        elif note.get("note") == "passed-over":
            found.state, found.seconds = _state(note), nonnegative(note.get("seconds"))
    path = str(step.args.get("path") or step.name.removeprefix("notebook "))
    return NotebookView(step.name, path, list(passes.values()))


def _cell(note: Mapping[str, Any]) -> NotebookCell:
    return NotebookCell(
        one_line(str(note.get("source") or ""))[:120],
        _state(note),
        one_line(str(note.get("class") or "")),
        one_line(str(note.get("error") or ""))[:300],
        nonnegative(note.get("seconds")),
        nonnegative(note.get("peak_memory_bytes")),
        nonnegative(note.get("gpu_peak_memory_bytes")),
    )


def _state(note: Mapping[str, Any]) -> str:
    state = note.get("state")
    return state if isinstance(state, str) and state in ("passed", "failed", "skipped") else "invalid"


def nonnegative(value: Any) -> float | None:
    """The value if it is a finite, non-negative number, otherwise None. For untrusted notes."""
    number = number_of(value)
    return number if number is not None and number >= 0 else None
