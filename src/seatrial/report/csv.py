"""A run as CSV: a row for each cell, and for each combination that was not run; a column for each axis and figure."""

import csv
import io
from collections.abc import Iterable

from seatrial.job import CellResult, Figure, Hole, RunResults, causes_by_cell, figures
from seatrial.report.view.run import why_of
from seatrial.report.view.words import clock_text, one_line

_FIRST = ("run", "suite", "commit", "trial", "kind", "cell", "hash", "verdict", "flaky", "attempts", "seconds")
_LAST = ("target", "machine", "host", "started", "why", "cause", "change", "since_run", "since", "since_commit")
_HOLE = "hole"
# What a spreadsheet takes for the beginning of a formula: text that a job said must not become one.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
TIME = "%Y-%m-%dT%H:%M:%SZ"


def render_csv(results: RunResults) -> str:
    """Text is quoted as RFC 4180 has it; one that a spreadsheet would compute has a ' before it."""
    axes = _names([*(cell.axes for cell in results.cells), *(hole.axes for hole in results.holes)])
    found = {cell.hash: {_figure_name(one): one.value for one in figures(cell.metrics)} for cell in results.cells}
    names = _names(found[cell.hash] for cell in results.cells)
    causes = {hash_: own[0].id for hash_, own in causes_by_cell(results).items()}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = [*_FIRST, *(f"axis {axis}" for axis in axes), *_LAST, *(f"figure {name}" for name in names)]
    writer.writerow([_text(column) for column in columns])
    for cell in results.cells:
        row = _cell(results, cell, causes.get(cell.hash, ""))
        row |= {f"axis {axis}": value for axis, value in cell.axes.items()}
        row |= {f"figure {name}": value for name, value in found[cell.hash].items()}
        writer.writerow([_text(row.get(column, "")) for column in columns])
    for hole in results.holes:
        row = _hole(results, hole) | {f"axis {axis}": value for axis, value in hole.axes.items()}
        writer.writerow([_text(row.get(column, "")) for column in columns])
    return out.getvalue()


def _cell(results: RunResults, cell: CellResult, cause: str) -> dict[str, object]:
    last = cell.attempts[-1] if cell.attempts else None
    since = cell.news.since if cell.news else None
    why = (last.headline if last else "") or ("" if cell.verdict.good and not cell.why else why_of(cell))
    row: dict[str, object] = {
        **_run(results),
        "trial": cell.trial,
        "kind": cell.kind,
        "cell": cell.id,
        "hash": cell.hash,
        "verdict": cell.verdict.value,
        "flaky": "yes" if cell.flaky else "no",
        "attempts": len(cell.attempts),
        "why": why,
        "cause": cause,
        "change": cell.news.change.value if cell.news else "",
    }
    if last:
        row |= {"target": last.place.target, "machine": last.place.machine, "host": last.place.host}
        row |= {"seconds": "" if last.seconds is None else last.seconds}
        row |= {"started": clock_text(last.stages[0].wall_s, TIME) if last.stages else ""}
    if since:
        row |= {"since_run": since.run, "since": clock_text(since.at_s, TIME), "since_commit": since.commit}
    return row


def _hole(results: RunResults, hole: Hole) -> dict[str, object]:
    return {**_run(results), "trial": hole.trial, "verdict": _HOLE, "why": hole.why}


def _run(results: RunResults) -> dict[str, object]:
    return {"run": results.run, "suite": results.suite, "commit": results.commit}


def _figure_name(figure: Figure) -> str:
    return f"{figure.name} [{figure.unit}]" if figure.unit else figure.name


def _names(of_rows: Iterable[Iterable[str]]) -> list[str]:
    """Each once, in the order in which they come."""
    return list(dict.fromkeys(name for names in of_rows for name in names))


def _text(value: object) -> str:
    if not isinstance(value, str):
        return str(value)
    line = one_line(value)
    return f"'{line}" if line.startswith(_FORMULA) else line
