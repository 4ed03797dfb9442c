"""The HTML report: one file that needs nothing else and can be read without scripts, on a phone, for 1,000 cells.

Everything foreign goes through the template's escaping, and the page's own policy forbids every script but ours and
every request.
"""

import contextlib
import os
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any

from seatrial.job import CELLS_WORST_FIRST, CellResult, Finding, RunResults, Verdict
from seatrial.report.cell_view import CellView, NotebookView, nonnegative, read_cell, url
from seatrial.report.html.resource_charts import Chart, resource_charts
from seatrial.report.html.templates import template
from seatrial.report.matrix import Matrix, matrices
from seatrial.report.summary import bad_findings, describe_attempts, finding_title, rerun_command, summarize, why_of
from seatrial.report.symbols import SYMBOLS
from seatrial.report.text import (
    axes_text,
    clock_text,
    count,
    duration_text,
    one_line,
    shorten,
    size_text,
    strip_controls,
)

MOST_EVIDENCE = 8_000
MOST_NOTEBOOK_CELLS = 120
MOST_CHARTS = 300  # cells with charts: those that failed first
INERT = frozenset((".txt", ".json", ".csv", ".png", ".jpg", ".jpeg", ".gif", ".webp"))
OPEN = 5  # failures that are open from the start


@dataclass(frozen=True)
class Link:
    name: str
    url: str


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


@dataclass(frozen=True)
class CellSection:
    result: CellResult
    verdict: str
    figures: str
    headline: str
    findings: list[Finding]  # that are not good
    steps: list[dict[str, Any]]
    notebooks: list[NotebookTable]
    charts: list[Chart]
    attempts: list[str]
    links: list[Link]
    packages: dict[str, str]  # of the runtime, as found
    log_tail: str
    rerun: str  # the command that runs just this cell
    open: bool


def render_html(results: RunResults, folder: Path, base: str = "") -> str:
    """`base` is where the run folder is as seen from where the report will be; "" when it is written into it."""
    script = (Path(__file__).parent / "report.js").read_text(encoding="utf-8")
    summary = summarize(results)
    rank = {verdict: place for place, verdict in enumerate(CELLS_WORST_FIRST)}
    ordered = sorted(
        results.cells, key=lambda cell: (cell.verdict.good, rank[cell.verdict] if not cell.verdict.good else 0)
    )
    cells = (_cell(results, read_cell(folder, cell, base), place) for place, cell in enumerate(ordered))
    made: str = template("report.html.j2", clean=_clean, one_line=one_line, seconds=duration_text).render(
        results=results,
        summary=summary,
        started=clock_text(results.started_s, "%Y-%m-%d %H:%M UTC"),
        matrices=[_grid(matrix, results) for matrix in matrices(results.cells, results.holes, results.axes)],
        cells=cells,
        symbols=SYMBOLS,
        count=count,
        axes_text=axes_text,
        finding_title=finding_title,
        style=(Path(__file__).parent / "report.css").read_text(encoding="utf-8"),
        script=script,
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
        series=_series(folder),
    )
    return made


def _series(folder: Path) -> str:
    """What the history said of the run's figures; its markup is escaped where it is made."""
    from seatrial.report.html.series import render_series
    from seatrial.report.trend.series import read_series

    made = read_series(folder)
    return render_series(made) if made is not None else ""


def _clean(text: str) -> str:
    return strip_controls(shorten(text, MOST_EVIDENCE)).strip("\n")


def _grid(matrix: Matrix, results: RunResults) -> dict[str, Any]:
    """The matrix with everything that a place of it shows."""
    by_id = {cell.id: cell for cell in results.cells}
    reasons = {one_line(hole.why) or "no reason given": None for hole in results.holes}
    anchor = {reason: place for place, reason in enumerate(reasons, 1)}
    rows = []
    for row, label in enumerate(matrix.rows):
        spots: list[dict[str, Any] | None] = []
        for column in range(len(matrix.columns)):
            cell = by_id.get(matrix.cells.get((row, column), ""))
            if cell is not None:
                spots.append(_spot(cell))
            elif (row, column) in matrix.holes:
                why = one_line(matrix.holes[row, column]) or "no reason given"
                spots.append(
                    {
                        "verdict": "hole",
                        "title": f"not run: {why}",
                        "href": f"#hole-{anchor[why]}",
                        "text": "hole",
                        "flaky": False,
                    }
                )
            else:
                spots.append(None)
        rows.append((label, spots))
    return {"matrix": matrix, "rows": rows, "dense": len(matrix.columns) > 12}


def _spot(cell: CellResult) -> dict[str, Any]:
    took = duration_text(cell.attempts[-1].seconds) if cell.attempts else ""
    text = took if cell.verdict is Verdict.PASSED and took else cell.verdict.value
    flaky = ", flaky" if cell.flaky else ""
    hint = f"{cell.verdict.value}{flaky} {took}" if cell.verdict.good else f"{cell.verdict.value}: {_headline(cell)}"
    return {
        "verdict": cell.verdict.value,
        "title": hint.strip(),
        "href": f"#c-{url(cell.hash)}",
        "text": text,
        "flaky": cell.flaky,
    }


def _headline(cell: CellResult) -> str:
    findings = bad_findings(cell.findings)
    if findings:
        return one_line(f"{finding_title(findings[0], cell)}: {findings[0].message}")
    if not cell.verdict.good or cell.verdict is Verdict.SKIPPED:
        return why_of(cell)
    xfails = [finding for finding in cell.findings if finding.verdict is Verdict.XFAIL]
    return one_line(f"{finding_title(xfails[0], cell)}: {xfails[0].message}") if xfails else ""


def _cell(results: RunResults, view: CellView, place: int) -> CellSection:
    cell = view.result
    failed = not cell.verdict.good
    figures = [
        duration_text(view.seconds),
        size_text(view.peak_memory_bytes) and f"peak {size_text(view.peak_memory_bytes)}",
    ]
    return CellSection(
        result=cell,
        verdict=cell.verdict.value,
        figures=" · ".join(part for part in figures if part),
        headline=_headline(cell),
        findings=bad_findings(cell.findings),
        steps=_steps(view),
        notebooks=[_table(notebook) for notebook in view.notebooks if notebook.passes],
        charts=resource_charts(view) if place < MOST_CHARTS else [],
        attempts=describe_attempts(cell) if len(cell.attempts) > 1 or failed else [],
        links=_links(view),
        packages=_packages(view.result),
        log_tail=view.log_tail() if failed else "",
        rerun=rerun_command(results, cell),
        open=failed and place < OPEN,
    )


def _links(view: CellView) -> list[Link]:
    links = [Link(log.removeprefix(f"{view.base}/"), url(log)) for log in view.logs]
    for name in view.kept:
        shown = os.fsencode(name.removeprefix("files/")).decode("utf-8", "backslashreplace")
        links.append(Link(one_line(shown), url(f"{view.base}/{name}") if _inert(name, view) else ""))
    return links


def _inert(name: str, view: CellView) -> bool:
    """Whether a browser only shows it. What a job made could be a program that then runs as if it were of this report:
    a page, a drawing, or a file whose name says nothing and whose content a browser goes by. Pages of notebooks are
    ours, written over whatever was there."""
    path = PurePath(name)
    if path.suffix == ".html" and path.parts[:2] == ("files", "notebooks"):
        return str(path.with_suffix(".ipynb")) in view.kept
    if path.suffix == ".ipynb":
        with contextlib.suppress(OSError), (view.folder / name).open("rb") as file:
            return file.read(1) == b"{"  # browsers do not know the name, and take no such file for a page
    return path.suffix.lower() in INERT


def _steps(view: CellView) -> list[dict[str, Any]]:
    times = [view.step_seconds(finding.step) for finding in view.result.findings]
    longest = max((took for took in times if took), default=0.0) or 1.0
    rows = []
    for finding, took in zip(view.result.findings, times, strict=True):
        step = view.steps.get(finding.step)
        rows.append(
            {
                "finding": finding,
                "title": finding_title(finding, view.result),
                "took": duration_text(took),
                "bar": _bar(took, longest),
                "peak": size_text(step.peak_memory_bytes) if step else "",
            }
        )
    return rows


def _bar(value: float | None, most: float) -> int:
    return min(100, max(2, round(100 * value / most))) if value else 0


def _table(notebook: NotebookView) -> NotebookTable:
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
    gpu = nonnegative(note.get("gpu_peak_memory_bytes"))
    return {
        "state": _state(note.get("state")),
        "class": one_line(str(note.get("class") or "")),
        "took": duration_text(took),
        "took_bar": _bar(took, longest),
        "peak": size_text(peak),
        "peak_bar": _bar(peak, largest),
        "gpu": size_text(gpu),
        "error": one_line(str(note.get("error") or ""))[:300],
    }


def _packages(cell: CellResult) -> dict[str, str]:
    found: Any = next((finding.data["packages"] for finding in cell.findings if "packages" in finding.data), {})
    return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else {}
