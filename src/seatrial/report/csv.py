"""CSV: one row per cell and per excluded combination, one column per axis and metric."""

import csv
import io
from collections.abc import Iterable

from seatrial.job import Metric
from seatrial.report.view.cell import CellView
from seatrial.report.view.run import RunView
from seatrial.report.view.words import clock_text, one_line

_FIRST = ("run", "suite", "commit", "trial", "kind", "cell", "hash", "verdict", "flaky", "attempts", "seconds")
_LAST = ("target", "machine", "host", "started", "why", "cause", "change", "since_run", "since", "since_commit")
_EXCLUDED = "hole"
# Characters that start a formula in spreadsheets: job output must not become one.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
TIME = "%Y-%m-%dT%H:%M:%SZ"


def render_csv(run: RunView) -> str:
    """Quoted as in RFC 4180. Text that a spreadsheet would evaluate is prefixed with '."""
    axes = _names([*(cell.axes for cell in run.cells), *(combination.axes for combination in run.excluded)])
    names = _names(map(_metric_name, cell.metrics) for cell in run.cells)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = [*_FIRST, *(f"axis {axis}" for axis in axes), *_LAST, *(f"figure {name}" for name in names)]
    writer.writerow([_text(column) for column in columns])
    rows = [(cell.axes, _cell(cell)) for cell in run.cells]
    for combination in run.excluded:
        left_out: dict[str, object] = {"trial": combination.trial, "verdict": _EXCLUDED, "why": combination.why}
        rows.append((combination.axes, left_out))
    for of_axes, row in rows:
        row |= {"run": run.run, "suite": run.suite, "commit": run.commit}
        row |= {f"axis {axis}": value for axis, value in of_axes.items()}
        writer.writerow([_text(row.get(column, "")) for column in columns])
    return out.getvalue()


def _cell(cell: CellView) -> dict[str, object]:
    last = cell.last
    since = cell.news.since if cell.news else None
    row: dict[str, object] = {
        "trial": cell.trial,
        "kind": cell.kind,
        "cell": cell.id,
        "hash": cell.hash,
        "verdict": cell.verdict.value,
        "flaky": "yes" if cell.flaky else "no",
        "attempts": len(cell.attempts),
        "why": cell.error if cell.bad or cell.reason or (last and last.headline) else "",
        "cause": cell.cause.id if cell.cause else "",
        "change": cell.news.change.value if cell.news else "",
    }
    if last:
        row |= {"target": last.place.target, "machine": last.place.machine, "host": last.place.host}
        row |= {"seconds": "" if last.seconds is None else last.seconds}
        row |= {"started": clock_text(last.stages[0].wall_s, TIME) if last.stages else ""}
    if since:
        row |= {"since_run": since.run, "since": clock_text(since.at_s, TIME), "since_commit": since.commit}
    return row | {f"figure {_metric_name(one)}": one.value for one in cell.metrics}


def _metric_name(metric: Metric) -> str:
    return f"{metric.name} [{metric.unit}]" if metric.unit else metric.name


def _names(of_rows: Iterable[Iterable[str]]) -> list[str]:
    """Unique names, in order of appearance."""
    return list(dict.fromkeys(name for names in of_rows for name in names))


def _text(value: object) -> str:
    if not isinstance(value, str):
        return str(value)
    line = one_line(value)
    return f"'{line}" if line.startswith(_FORMULA) else line
