"""The HTML report: one file that needs nothing else and can be read without scripts, on a phone, for 1,000 cells.

Everything foreign goes through the template's escaping, and the page's own policy forbids every script but ours and
every request.
"""

import time
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from seatrial.job import CELLS_WORST_FIRST, CellResult, Finding, RunResults, Verdict
from seatrial.report.cell_view import CellSeen, NotebookSeen, number, see, url
from seatrial.report.html.resource_charts import Chart, charts
from seatrial.report.html.templates import template
from seatrial.report.matrix import Matrix, matrices
from seatrial.report.summary import again, bad, places, tell, title, why_of
from seatrial.report.symbols import LOOKS
from seatrial.report.text import axes_text, bounded, clean, count, one_line, seconds, size

MOST_EVIDENCE = 8_000
MOST_NOTEBOOK_CELLS = 120
MOST_CHARTS = 300  # cells with charts: those that failed first
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
class CellView:
    result: CellResult
    verdict: str
    figures: str
    headline: str
    bad: list[Finding]
    steps: list[dict[str, Any]]
    notebooks: list[NotebookTable]
    charts: list[Chart]
    places: list[str]
    links: list[Link]
    packages: dict[str, str]  # of the runtime, as found
    log_tail: str
    again: str
    open: bool


def render_html(results: RunResults, folder: Path, base: str = "") -> str:
    """`base` is where the run folder is as seen from where the report will be; "" when it is written into it."""
    script = (Path(__file__).parent / "report.js").read_text(encoding="utf-8")
    story = tell(results)
    rank = {verdict: place for place, verdict in enumerate(CELLS_WORST_FIRST)}
    ordered = sorted(
        results.cells, key=lambda cell: (cell.verdict.good, rank[cell.verdict] if not cell.verdict.good else 0)
    )
    cells = (_cell(results, see(folder, cell, base), place) for place, cell in enumerate(ordered))
    made: str = template("report.html.j2", clean=_clean, one_line=one_line, seconds=seconds).render(
        results=results,
        story=story,
        started=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(results.started_s)),
        matrices=[_grid(matrix, results) for matrix in matrices(results.cells, results.holes)],
        cells=cells,
        looks=LOOKS,
        count=count,
        axes_text=axes_text,
        title=title,
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
    return clean(bounded(text, MOST_EVIDENCE)).strip("\n")


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
    took = seconds(cell.attempts[-1].seconds) if cell.attempts else ""
    text = took if cell.verdict is Verdict.PASSED and took else cell.verdict.value
    flaky = ", flaky" if cell.flaky else ""
    told = f"{cell.verdict.value}{flaky} {took}" if cell.verdict.good else f"{cell.verdict.value}: {_headline(cell)}"
    return {
        "verdict": cell.verdict.value,
        "title": told.strip(),
        "href": f"#c-{url(cell.hash)}",
        "text": text,
        "flaky": cell.flaky,
    }


def _headline(cell: CellResult) -> str:
    findings = bad(cell.findings)
    if findings:
        return one_line(f"{title(findings[0], cell)}: {findings[0].message}")
    if not cell.verdict.good or cell.verdict is Verdict.SKIPPED:
        return why_of(cell)
    xfails = [finding for finding in cell.findings if finding.verdict is Verdict.XFAIL]
    return one_line(f"{title(xfails[0], cell)}: {xfails[0].message}") if xfails else ""


def _cell(results: RunResults, seen: CellSeen, place: int) -> CellView:
    cell = seen.result
    failed = not cell.verdict.good
    figures = [seconds(seen.seconds), size(seen.peak_memory_bytes) and f"peak {size(seen.peak_memory_bytes)}"]
    return CellView(
        result=cell,
        verdict=cell.verdict.value,
        figures=" · ".join(part for part in figures if part),
        headline=_headline(cell),
        bad=bad(cell.findings),
        steps=_steps(seen),
        notebooks=[_table(notebook) for notebook in seen.notebooks if notebook.passes],
        charts=charts(seen) if place < MOST_CHARTS else [],
        places=places(cell) if len(cell.attempts) > 1 or failed else [],
        links=_links(seen),
        packages=_packages(seen.result),
        log_tail=seen.log_tail() if failed else "",
        again=again(results, cell),
        open=failed and place < OPEN,
    )


def _links(seen: CellSeen) -> list[Link]:
    links = [Link(log.removeprefix(f"{seen.base}/"), url(log)) for log in seen.logs]
    return links + [Link(one_line(name.removeprefix("files/")), url(f"{seen.base}/{name}")) for name in seen.kept]


def _steps(seen: CellSeen) -> list[dict[str, Any]]:
    times = [seen.step_seconds(finding.step) for finding in seen.result.findings]
    longest = max((took for took in times if took), default=0.0) or 1.0
    rows = []
    for finding, took in zip(seen.result.findings, times, strict=True):
        step = seen.steps.get(finding.step)
        rows.append(
            {
                "finding": finding,
                "title": title(finding, seen.result),
                "took": seconds(took),
                "bar": _bar(took, longest),
                "peak": size(step.peak_memory_bytes) if step else "",
            }
        )
    return rows


def _bar(value: float | None, most: float) -> int:
    return min(100, max(2, round(100 * value / most))) if value else 0


def _table(notebook: NotebookSeen) -> NotebookTable:
    """Rows are the notebook's cells, columns its passes: what changes from pass to pass stands side by side."""
    numbers = notebook.numbers
    if len(numbers) > MOST_NOTEBOOK_CELLS:
        numbers = _telling(notebook, numbers)
    notes = [note for seen in notebook.passes for note in seen.cells.values()]
    longest = max((number(note.get("seconds")) or 0.0 for note in notes), default=0.0) or 1.0
    largest = max((number(note.get("peak_memory_bytes")) or 0.0 for note in notes), default=0.0) or 1.0
    rows = []
    for which in numbers:
        found = [seen.cells.get(which) for seen in notebook.passes]
        source = next((str(note.get("source") or "") for note in found if note), "")
        rows.append(
            NotebookRow(which, one_line(source)[:120], [note and _note(note, longest, largest) for note in found])
        )
    return NotebookTable(
        notebook.path,
        [(seen.name, _state(seen.state), seconds(seen.seconds)) for seen in notebook.passes],
        rows,
        len(notebook.numbers) - len(numbers),
    )


def _telling(notebook: NotebookSeen, numbers: Iterable[int]) -> list[int]:
    """Of too many cells those that did not pass, then the slowest."""

    def weight(which: int) -> tuple[bool, float]:
        notes = [seen.cells[which] for seen in notebook.passes if which in seen.cells]
        return all(note.get("state") == "passed" for note in notes), -max(
            number(n.get("seconds")) or 0.0 for n in notes
        )

    return sorted(sorted(numbers, key=weight)[:MOST_NOTEBOOK_CELLS])


def _state(state: object) -> str:
    return state if state in ("passed", "failed", "skipped") else "invalid"


def _note(note: dict[str, Any], longest: float, largest: float) -> dict[str, Any]:
    took, peak = number(note.get("seconds")), number(note.get("peak_memory_bytes"))
    gpu = number(note.get("gpu_peak_memory_bytes"))
    return {
        "state": _state(note.get("state")),
        "class": one_line(str(note.get("class") or "")),
        "took": seconds(took),
        "took_bar": _bar(took, longest),
        "peak": size(peak),
        "peak_bar": _bar(peak, largest),
        "gpu": size(gpu),
        "error": one_line(str(note.get("error") or ""))[:300],
    }


def _packages(cell: CellResult) -> dict[str, str]:
    found: Any = next((finding.data["packages"] for finding in cell.findings if "packages" in finding.data), {})
    return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else {}
