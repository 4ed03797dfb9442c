"""All that is shown of one cell, evidence first, and of one cause."""

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from msgspec.structs import replace

from seatrial.job import Finding, Verdict
from seatrial.report.html.charts import Picture, ResourceChart, picture, resource_charts
from seatrial.report.view.cell import CellDetails, CellView, NotebookView, nonnegative, url
from seatrial.report.view.words import duration_text, one_line, shorten, size_text

# A notebook's cells and passes side by side, as the inspector of a cell shows them.


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


_MOST_EVIDENCE = 8_000
_MOST_FILES = 60
STEP_WIDTH = 130
INERT = frozenset((".txt", ".json", ".csv", ".png", ".jpg", ".jpeg", ".gif", ".webp"))
LOG_PAGE = "log.html"
_TOLD = (Verdict.XFAIL, Verdict.SKIPPED)  # messages of steps that are good and did not pass
_LOG_LINE = re.compile(r"^line ([\d,]+) of the log(?: of the (\S+))?:$", re.MULTILINE)


@dataclass(frozen=True)
class Link:
    name: str
    url: str


@dataclass(frozen=True)
class Evidence:
    """What proves a finding, in lines; `hit` are those that say it."""

    title: str
    verdict: str
    class_: str
    message: str
    lines: list[tuple[str, bool]]
    log: Link | None  # to the line that it quotes


@dataclass(frozen=True)
class StepRow:
    title: str
    verdict: str
    message: str
    took: str
    peak: str
    left: float
    width: float


@dataclass(frozen=True)
class CellInspector:
    cell: CellView
    details: CellDetails
    evidence: list[Evidence]
    steps: list[StepRow]
    quiet: list[StepRow]  # checks that passed, and have no time of their own
    notebooks: list[NotebookTable]
    resources: list[ResourceChart]
    pictures: list[Picture]
    links: list[Link]
    more_files: int
    log_tail: str


def inspect_cell(cell: CellView, served: bool = False) -> CellInspector:
    """`served`: pages of logs of cells that are not good are made when they are asked for."""
    served = served and cell.bad
    details = cell.details()
    links, more = _links(details, served)
    steps = _steps(cell, details)
    return CellInspector(
        cell=cell,
        details=details,
        evidence=_evidences(cell, details, served),
        steps=[row for row in steps if not _quiet(row)],
        quiet=[row for row in steps if _quiet(row)],
        notebooks=[notebook_table(notebook) for notebook in details.notebooks if notebook.passes],
        resources=resource_charts(details.observed),
        pictures=[picture(chart) for chart in cell.charts],
        links=links,
        more_files=more,
        log_tail=shorten(details.log_tail(), _MOST_EVIDENCE) if cell.bad else "",
    )


def _evidences(cell: CellView, details: CellDetails, served: bool) -> list[Evidence]:
    """What several findings quote alike is shown once."""
    made = []
    seen: set[str] = set()
    for finding in cell.bad_findings:
        told = replace(finding, evidence="") if finding.evidence in seen else finding
        seen.add(finding.evidence)
        made.append(_evidence(told, cell.title(finding), details, served))
    return made


def _evidence(finding: Finding, title: str, details: CellDetails, served: bool) -> Evidence:
    """The first line sums up what follows: it is shown once, where it stands in what follows."""
    text = shorten(finding.evidence, _MOST_EVIDENCE).strip("\n")
    lines = text.split("\n")
    first = lines[0].strip() if text else ""
    rest = lines[1:]
    hits = [line.strip() == first for line in rest]
    shown = (
        list(zip(rest, hits, strict=True)) if any(hits) else [(line, place == 0) for place, line in enumerate(lines)]
    )
    return Evidence(
        title=title,
        verdict=finding.verdict.value,
        class_=finding.class_,
        message="" if first == finding.message.strip() else finding.message,
        lines=shown if text else [],
        log=_log_line(text, details, served),
    )


def _log_line(text: str, details: CellDetails, served: bool) -> Link | None:
    found = _LOG_LINE.search(text)
    if found is None:
        return None
    part = f"{found[2]}/" if found[2] else details.parts[0]
    if not served and not (details.folder / part / LOG_PAGE).is_file():
        return None
    where = url(f"{details.base}/{part}{LOG_PAGE}")
    return Link(f"line {found[1]} of the log", f"{where}#L{found[1].replace(',', '')}")


def _steps(cell: CellView, details: CellDetails) -> list[StepRow]:
    """Each finding, with the time of its step from the beginning of the first."""
    known = [step for step in details.steps.values() if step.started_s is not None]
    first = min((step.started_s or 0.0 for step in known), default=0.0)
    last = max((step.ended_s if step.ended_s is not None else step.started_s or 0.0 for step in known), default=0.0)
    span = max(last - first, 1e-9)
    rows = []
    seen: set[str] = set()
    for finding in cell.findings:
        step = details.steps.get(finding.step)
        took = details.step_seconds(finding.step)
        timed = step is not None and step.started_s is not None and finding.step not in seen
        begin = (step.started_s or 0.0) - first if step is not None else 0.0
        rows.append(
            StepRow(
                cell.title(finding),
                finding.verdict.value,
                finding.message if finding.verdict in _TOLD else "",
                duration_text(took) if finding.step not in seen else "",
                size_text(step.peak_memory_bytes) if step and timed else "",
                round(begin / span * STEP_WIDTH, 1) if timed else 0.0,
                round(max(2.0, (took or 0.0) / span * STEP_WIDTH), 1) if timed else 0.0,
            )
        )
        seen.add(finding.step)
    return rows


def _quiet(row: StepRow) -> bool:
    return row.verdict == Verdict.PASSED and not row.took and not row.width


def _links(details: CellDetails, served: bool) -> tuple[list[Link], int]:
    links = []
    for log in details.logs:
        name = log.removeprefix(f"{details.base}/")
        page = name.removesuffix("log.txt") + LOG_PAGE
        if served or (details.folder / page).is_file():
            links.append(Link(name.removesuffix(".txt"), url(f"{details.base}/{page}")))
        links.append(Link(name, url(log)))
    for name in details.kept[:_MOST_FILES]:
        shown = os.fsencode(name.removeprefix("files/")).decode("utf-8", "backslashreplace")
        links.append(Link(one_line(shown), url(f"{details.base}/{name}") if _inert(name, details) else ""))
    return links, max(0, len(details.kept) - _MOST_FILES)


def _inert(name: str, details: CellDetails) -> bool:
    """Whether a browser only shows it. What a job made could be a program that then runs as if it were of this report:
    a page, a drawing, or a file whose name says nothing and whose content a browser goes by. Pages of notebooks are
    ours, written over whatever was there."""
    path = PurePath(name)
    if path.suffix == ".html" and path.parts[:2] == ("files", "notebooks"):
        return str(path.with_suffix(".ipynb")) in details.kept
    if path.suffix == ".ipynb":
        with contextlib.suppress(OSError), (details.folder / name).open("rb") as file:
            return file.read(1) == b"{"  # browsers do not know the name, and take no such file for a page
    return path.suffix.lower() in INERT
