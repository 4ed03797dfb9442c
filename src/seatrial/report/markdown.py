"""Markdown for the summary page of a CI job: the matrix, each failure with its evidence, and the rest in counts.

Everything that a job or a suite said is inside a code span, a code block that it cannot close, or escaped. The whole
stays below what such pages take.
"""

import re
from pathlib import Path

from seatrial.job import CellResult, Finding, RunResults
from seatrial.report.cell_view import read_cell
from seatrial.report.matrix import Matrix, matrices
from seatrial.report.summary import (
    RunSummary,
    bad_findings,
    cause_place,
    causes_sentence,
    describe_attempts,
    finding_title,
    recent_changes,
    rerun_command,
    summarize,
    why_of,
)
from seatrial.report.symbols import SYMBOLS
from seatrial.report.text import axes_text, count, duration_text, one_line, shorten, strip_controls

MOST_BYTES = 900_000  # GitHub takes 1 MiB
MOST_EVIDENCE = 3_000
MOST_FINDINGS = 20
MOST_PLACES = 2_500  # of one matrix: larger ones are left to report.html
MOST_ITEMS = 100

_SIGNS = {
    "passed": "✅",
    "failed": "❌",
    "slower": "🐢",
    "faster": "🐇",
    "infra": "🚧",
    "timeout": "⏱️",
    "invalid": "❔",
    "skipped": "⏭️",
    "xfail": "☑️",
    "xpass": "⚠️",
    "hole": "·",
}
# What means something in the middle of a line: spans, links, tables, mathematics, and the addresses that become links.
_SPECIAL = re.compile(r"([\\`*_\[\]#|~$]|:(?=//|\w+:)|(?<=www)\.)", re.IGNORECASE)


def render_markdown(results: RunResults, folder: Path) -> str:
    summary = summarize(results)
    head = [*_head(results, summary), *_causes(results), *_matrices(results)]
    tail = [*_moved(folder), *_flaky(summary), *_xfails(summary), *_not_run(summary)]
    room = MOST_BYTES - _bytes(head) - _bytes(tail)
    shown: list[str] = []
    for number, cell in enumerate(summary.failures):
        block = _failure(results, folder, cell)
        room -= _bytes(block)
        if room < 0:
            rest = len(summary.failures) - number
            shown += [
                f"_… and {count(rest, 'more cell')} that did not pass: all are in `report.html` and `results.json`._",
                "",
            ]
            break
        shown += block
    if shown:
        shown = ["### Failures", "", *shown]
    return "\n".join([*head, *shown, *tail])


def _moved(folder: Path) -> list[str]:
    lines = [f"- {escape_text(sentence)}" for sentence in recent_changes(folder)]
    return ["### What moved", "", *lines, ""] if lines else []


def _bytes(lines: list[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def escape_text(text: str) -> str:
    """Foreign text that shows as it is: no Markdown, no HTML, no mention of anybody."""
    safe = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", safe).replace("@", "@\u200b")


def code(text: str) -> str:
    """A code span that the text cannot leave. Not for a table, where a bar would end it."""
    line = one_line(text) or " "
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"


def fenced(text: str) -> list[str]:
    """A code block that the text cannot leave."""
    shown = strip_controls(shorten(text, MOST_EVIDENCE)).rstrip("\n")
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", *shown.split("\n"), fence]


def _head(results: RunResults, summary: RunSummary) -> list[str]:
    counts = [f"{_SIGNS[verdict.value]} {number} {verdict.value}" for verdict, number in summary.counts.items()]
    if summary.flaky:
        counts.append(f"{SYMBOLS['flaky'].glyph} {len(summary.flaky)} flaky")
    if results.holes:
        counts.append(count(len(results.holes), "hole"))
    lines = [
        f"## {_SIGNS[results.verdict.value]} {escape_text(results.suite)}: {results.verdict.value}",
        "",
        " · ".join(
            [
                f"{count(len(results.cells), 'cell')} in {duration_text(results.seconds)}",
                *counts,
                f"run {code(results.run)}",
            ]
        ),
        "",
    ]
    if results.interrupted:
        lines += ["**The run was interrupted: not all cells were done.**", ""]
    return lines


def _causes(results: RunResults) -> list[str]:
    if not results.causes:
        return []
    lines = [f"### {causes_sentence(results)}", ""]
    for cause in results.causes[:MOST_ITEMS]:
        said = f"{_SIGNS[cause.verdict.value]} **{len(cause.cells)}** {escape_text(cause.text)}"
        lines.append(f"- {said}<br>{escape_text(cause_place(cause, results))}")
    return [*lines, *_rest(len(results.causes)), ""]


def _matrices(results: RunResults) -> list[str]:
    cells = {cell.id: cell for cell in results.cells}
    lines: list[str] = []
    for matrix in matrices(results.cells, results.holes, results.axes):
        lines += [f"### {escape_text(matrix.trial)}" + (f" ({escape_text(matrix.fixed)})" if matrix.fixed else ""), ""]
        if len(matrix.rows) * len(matrix.columns) > MOST_PLACES:
            lines += [f"_{len(matrix.rows)} × {len(matrix.columns)}: too large for this page, see `report.html`._", ""]
            continue
        lines += [*_table(matrix, cells), ""]
    return lines


def _table(matrix: Matrix, cells: dict[str, CellResult]) -> list[str]:
    lines = [
        "| "
        + " | ".join([escape_text(matrix.row_title) or " ", *(escape_text(column) or " " for column in matrix.columns)])
        + " |",
        "| --- " + "| :-: " * len(matrix.columns) + "|",
    ]
    for row, label in enumerate(matrix.rows):
        signs = []
        for column in range(len(matrix.columns)):
            cell = cells.get(matrix.cells.get((row, column), ""))
            if cell:
                signs.append(_SIGNS[cell.verdict.value] + (" ↻" if cell.flaky else ""))
            else:
                signs.append(_SIGNS["hole"] if (row, column) in matrix.holes else " ")
        lines.append("| " + " | ".join([escape_text(label), *signs]) + " |")
    return lines


def _failure(results: RunResults, folder: Path, cell: CellResult) -> list[str]:
    view = read_cell(folder, cell)
    findings = bad_findings(cell.findings)
    first = f"{finding_title(findings[0], cell)}: {findings[0].message}" if findings else why_of(cell)
    head = f"{_SIGNS[cell.verdict.value]} <b>{_html(cell.id)}</b> {_html(one_line(first)[:200])}"
    lines = ["<details>", f"<summary>{head}</summary>", ""]
    for finding in findings[:MOST_FINDINGS]:
        lines += _finding(finding, finding_title(finding, cell))
    if len(findings) > MOST_FINDINGS:
        lines += [f"… and {count(len(findings) - MOST_FINDINGS, 'more finding')} that did not pass", ""]
    if not findings:
        lines += (
            [*(f"- {escape_text(place)}" for place in describe_attempts(cell)), ""]
            if cell.attempts
            else [escape_text(first), ""]
        )
    for log in view.logs:
        lines += [f"Log: {code(log)}", ""]
    return [*lines, f"Again: {code(rerun_command(results, cell))}", "", "</details>", ""]


def _html(text: str) -> str:
    safe = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", safe).replace("@", "@\u200b")


def _finding(finding: Finding, named: str) -> list[str]:
    what = f"**{escape_text(named)}** " + (f"({escape_text(finding.class_)}) " if finding.class_ else "")
    lines = [what + escape_text(finding.message), ""]
    return [*lines, *fenced(finding.evidence), ""] if finding.evidence.strip() else lines


def _flaky(summary: RunSummary) -> list[str]:
    if not summary.flaky:
        return []
    lines = ["### Flaky: passed on a retry", ""]
    for cell in summary.flaky[:MOST_ITEMS]:
        lines += [f"- {code(cell.id)}", *(f"  - {escape_text(place)}" for place in describe_attempts(cell))]
    return [*lines, *_rest(len(summary.flaky)), ""]


def _xfails(summary: RunSummary) -> list[str]:
    if not summary.xfails:
        return []
    lines = ["### Failed as declared", ""]
    for cell, finding in summary.xfails[:MOST_ITEMS]:
        lines.append(
            f"- {code(cell.id)} {code(finding_title(finding, cell))}: {escape_text(finding.message or cell.why)}"
        )
    return [*lines, *_rest(len(summary.xfails)), ""]


def _not_run(summary: RunSummary) -> list[str]:
    lines: list[str] = []
    if summary.skips:
        lines += ["### Skipped", ""]
        lines += [f"- {number} × {escape_text(reason)}" for reason, number in list(summary.skips.items())[:MOST_ITEMS]]
        lines += [*_rest(len(summary.skips)), ""]
    if summary.holes:
        lines += ["### Holes: combinations that are not run", ""]
        for reason, holes in list(summary.holes.items())[:MOST_ITEMS]:
            named = "; ".join(axes_text(hole.axes.items()) for hole in holes[:5]) + ("; …" if len(holes) > 5 else "")
            lines.append(f"- {len(holes)} × {escape_text(reason)}: {escape_text(named)}")
        lines += [*_rest(len(summary.holes)), ""]
    return lines


def _rest(number: int) -> list[str]:
    return [f"- … and {number - MOST_ITEMS:,} more"] if number > MOST_ITEMS else []
