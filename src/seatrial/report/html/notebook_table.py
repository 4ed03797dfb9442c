"""A notebook's cells and passes side by side, as the inspector of a cell shows them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from seatrial.report.cell_view import NotebookView, nonnegative
from seatrial.report.text import duration_text, one_line, size_text

MOST_NOTEBOOK_CELLS = 120
BAR = 60  # width of the longest


@dataclass(frozen=True)
class NotebookRow:
    number: int
    source: str
    passes: list[dict[str, Any] | None]


@dataclass(frozen=True)
class NotebookTable:
    path: str
    passes: list[tuple[str, str, str]]  # name, state, time
    rows: list[NotebookRow]
    left_out: int


def notebook_table(notebook: NotebookView) -> NotebookTable:
    """Rows are the notebook's cells, columns its passes: what changes from pass to pass stands side by side."""
    numbers = notebook.numbers
    if len(numbers) > MOST_NOTEBOOK_CELLS:
        numbers = _most_relevant(notebook, numbers)
    notes = [note for one in notebook.passes for note in one.cells.values()]
    longest = max((nonnegative(note.get("seconds")) or 0.0 for note in notes), default=0.0) or 1.0
    largest = max((nonnegative(note.get("peak_memory_bytes")) or 0.0 for note in notes), default=0.0) or 1.0
    rows = []
    for which in numbers:
        found = [one.cells.get(which) for one in notebook.passes]
        source = next((str(note.get("source") or "") for note in found if note), "")
        rows.append(
            NotebookRow(which, one_line(source)[:120], [note and _note(note, longest, largest) for note in found])
        )
    return NotebookTable(
        notebook.path,
        [(one.name, _state(one.state), duration_text(one.seconds)) for one in notebook.passes],
        rows,
        len(notebook.numbers) - len(numbers),
    )


def _most_relevant(notebook: NotebookView, numbers: Iterable[int]) -> list[int]:
    """Of too many cells those that did not pass, then the slowest."""

    def weight(which: int) -> tuple[bool, float]:
        notes = [one.cells[which] for one in notebook.passes if which in one.cells]
        return all(note.get("state") == "passed" for note in notes), -max(
            nonnegative(n.get("seconds")) or 0.0 for n in notes
        )

    return sorted(sorted(numbers, key=weight)[:MOST_NOTEBOOK_CELLS])


def _state(state: object) -> str:
    return state if state in ("passed", "failed", "skipped") else "invalid"


def _note(note: dict[str, Any], longest: float, largest: float) -> dict[str, Any]:
    took, peak = nonnegative(note.get("seconds")), nonnegative(note.get("peak_memory_bytes"))
    return {
        "state": _state(note.get("state")),
        "class": one_line(str(note.get("class") or "")),
        "took": duration_text(took),
        "took_bar": bar(took, longest),
        "peak": size_text(peak),
        "peak_bar": bar(peak, largest),
        "gpu": size_text(nonnegative(note.get("gpu_peak_memory_bytes"))),
        "error": one_line(str(note.get("error") or ""))[:300],
    }


def bar(value: float | None, most: float) -> float:
    return round(min(1.0, max(0.02, value / most)) * BAR, 1) if value else 0.0
