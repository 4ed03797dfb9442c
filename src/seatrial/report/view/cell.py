"""What a report shows of a cell beyond its verdict: step times, notebook cells and resources of its last attempt."""

import os
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from seatrial.job import CellResult, Observation, ObservedStep, Unreadable, opened_regular, read_json

LOG_TAIL_BYTES = 6_000


@dataclass(frozen=True)
class NotebookPassView:
    name: str
    state: str  # passed, failed, skipped; "" when it did not get to its end
    class_: str
    message: str
    seconds: float | None
    cells: dict[int, dict[str, Any]]


@dataclass(frozen=True)
class NotebookView:
    step: str
    path: str
    passes: list[NotebookPassView]

    @property
    def numbers(self) -> list[int]:
        return sorted({number for one in self.passes for number in one.cells})


@dataclass(frozen=True)
class CellView:
    """A cell's result beside what its folder holds. Nothing is `observed` where that is missing or broken."""

    result: CellResult
    folder: Path  # of the last attempt; may be missing
    base: str  # the same as others reach it: a relative path, no slash at its end
    observed: dict[str, Observation] = field(default_factory=dict)  # by part; "" of a single job

    @cached_property
    def steps(self) -> dict[str, ObservedStep]:
        return {step.name: step for one in self.observed.values() for step in one.steps}

    def step_seconds(self, step: str) -> float | None:
        if step in self.steps:
            return self.steps[step].seconds
        for notebook in self.notebooks:
            for one in notebook.passes:
                if step == f"{notebook.step} {one.name}":
                    return one.seconds
        return None

    @cached_property
    def notebooks(self) -> list[NotebookView]:
        return [_notebook(step) for step in self.steps.values() if step.kind == "notebook"]

    @cached_property
    def seconds(self) -> float | None:
        return self.result.attempts[-1].seconds if self.result.attempts else None

    @cached_property
    def peak_memory_bytes(self) -> int | None:
        return max((step.peak_memory_bytes for step in self.steps.values() if step.peak_memory_bytes), default=None)

    @cached_property
    def cpu_s(self) -> float | None:
        figures = [step.cpu_s for step in self.steps.values() if step.cpu_s is not None]
        return sum(figures) if figures else None

    @cached_property
    def parts(self) -> list[str]:
        """The folders of its parts, below its own; of one that is a single job, its own."""
        last = self.result.attempts[-1] if self.result.attempts else None
        return [f"{part}/" for part in last.parts] if last is not None and last.parts else [""]

    @cached_property
    def logs(self) -> list[str]:
        """Where its logs are, one of each part that has one."""
        names = [f"{part}log.txt" for part in self.parts]
        return [f"{self.base}/{name}" for name in names if (self.folder / name).is_file()]

    @cached_property
    def kept(self) -> list[str]:
        """Files that its jobs kept, relative to `base`; bounded."""
        names = []
        for part in self.parts:
            for place, folders, files in os.walk(self.folder / part / "files"):
                folders.sort()
                names += [str((Path(place) / name).relative_to(self.folder)) for name in sorted(files)]
                if len(names) > 200:
                    break
        return names[:200]

    def log_tail(self) -> str:
        """The ends of its logs; of several parts, each below the part's name."""
        return "\n".join(f"== {part}\n{text}" if part else text for part, text in self.log_tails().items())

    def log_tails(self) -> dict[str, str]:
        """By part, of those that have a log."""
        tails = {part.rstrip("/"): _tail(self.folder / part / "log.txt") for part in self.parts}
        return {part: text for part, text in tails.items() if text}


def _tail(path: Path) -> str:
    """Of what a job could have replaced by a link or a pipe: nothing."""
    try:
        with opened_regular(path) as found, open(found, "rb", closefd=False) as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - LOG_TAIL_BYTES))
            text = file.read(LOG_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    return text.partition("\n")[2] if end > LOG_TAIL_BYTES else text


def read_cell(folder: Path, cell: CellResult, base: str = "") -> CellView:
    """`folder` is the run's; `base` is how it is reached from where the report will be."""
    number = cell.attempts[-1].number if cell.attempts else 1
    below = f"cells/{cell.hash}/{number}"
    attempt = folder / below
    reached = f"{base.rstrip('/')}/{below}" if base else below
    view = CellView(cell, attempt, reached)
    try:
        observed = {
            part.rstrip("/"): read_json(attempt / part / "observation.json", Observation) for part in view.parts
        }
    except (OSError, Unreadable):
        return view
    return CellView(cell, attempt, reached, observed)


def url(path: str) -> str:
    """Also where it is not UTF-8."""
    return quote(os.fsencode(path), safe="/.-_~")


def _notebook(step: ObservedStep) -> NotebookView:
    passes: dict[str, dict[str, Any]] = {}
    for note in step.notes:
        name = note.get("pass")
        if not isinstance(name, str):
            continue
        found = passes.setdefault(name, {"cells": {}, "end": {}})
        if note.get("note") == "cell" and isinstance(note.get("cell"), int):
            found["cells"][note["cell"]] = note
        elif note.get("note") == "passed-over":
            found["end"] = note
    return NotebookView(
        step.name,
        str(step.args.get("path") or step.name.removeprefix("notebook ")),
        [
            NotebookPassView(
                name,
                str(found["end"].get("state") or ""),
                str(found["end"].get("class") or ""),
                str(found["end"].get("message") or ""),
                nonnegative(found["end"].get("seconds")),
                found["cells"],
            )
            for name, found in passes.items()
        ],
    )


def nonnegative(value: Any) -> float | None:
    """A figure of a note, which is foreign: anything but a finite number that is not negative is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= sys.float_info.max else None
