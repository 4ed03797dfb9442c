"""Markdown for CI job summaries and comments: causes, changes, the grid, then failures with evidence.

Text from jobs and suites is escaped, or in code spans or blocks that it cannot close. The size is limited to what such
pages accept: each section has its share and counts what it leaves out.
"""

import itertools
import re
from collections.abc import Iterable

from seatrial.job import Finding
from seatrial.job.units import count
from seatrial.report.view.cell import CellView
from seatrial.report.view.grid import Matrix
from seatrial.report.view.run import RunView, bad_rows
from seatrial.report.view.tables import JudgedTable
from seatrial.report.view.words import SYMBOLS, duration_text, one_line, shorten, strip_controls

MARKDOWN_BYTES = 60_000  # GitHub accepts 65,536 characters in a comment, 1 MiB in a summary
_SHARES = {"causes": 14_000, "news": 4_000, "grid": 16_000, "cases": 8_000, "tail": 8_000}  # of it; failures: the rest
MOST_FAILURE = 12_000  # bytes for the findings of one cell
_MOST_EVIDENCE = 2_500
_MOST_TEXT = 300  # characters of a name or a message
MOST_COMMAND = 2_000
_MOST_FINDINGS = 20  # of one cell
MOST_ITEMS = 100
_MOST_CASES = 30  # of a trial
_REST = 200  # bytes reserved for the note about omitted items

# Special characters within a line: spans, links, tables, mathematics, and URLs that become links.
_SPECIAL = re.compile(r"([\\`*_\[\]#|~$]|:(?=//|\w+:)|(?<=www)\.)", re.IGNORECASE)


def render_markdown(run: RunView) -> str:
    tables = map(_case_table, run.tables)
    cases = _fitting(tables, _SHARES["cases"], len(run.tables), "table of cases", "tables of cases")
    head = [*_head(run), *_causes(run), *_news(run), *_matrices(run), *cases]
    sections = [part for part in _sections(run) if part]
    tail = _fitting(sections, _SHARES["tail"], len(sections), "section")
    title = ["### Failures", ""] if run.failures else []
    room = MARKDOWN_BYTES - _bytes([*head, *title, *tail])
    blocks = (_failure(cell) for cell in run.failures)
    failures = _fitting(blocks, room, len(run.failures), "cell that did not pass", "cells that did not pass")
    return "\n".join([*head, *title, *failures, *tail])


def _fitting(blocks: Iterable[list[str]], room: int, number: int, one: str, many: str = "") -> list[str]:
    """The first of the `number` blocks that fit into `room` bytes, and the number of omitted ones."""
    room -= _REST
    lines: list[str] = []
    for place, block in enumerate(blocks):
        room -= _bytes(block)
        if room < 0:
            left = count(number - place, f"more {one}", f"more {many}" if many else "")
            return [*lines, f"_… and {left} in `report.html` and `results.json`._", ""]
        lines += block
    return lines


def _sections(run: RunView) -> Iterable[list[str]]:
    """The sections after the failures."""
    yield _list("Metric changes", [f"- {escape_text(text)}" for text in (*run.moved, *run.regressions)])
    flaky = ([code(cell.id), *map(escape_text, cell.attempt_lines)] for cell in run.flaky)
    yield _list("Flaky: passed on a retry", ["- " + "\n  - ".join(lines) for lines in flaky])
    xfails = [
        f"- {code(cell.id)} {code(cell.title(finding))}: {escape_text(finding.message or cell.reason)}"
        for cell, finding in run.xfails
    ]
    yield _list("Expected failures", xfails)
    skips = _list("Skipped", [f"- {number} × {escape_text(reason)}" for reason, number in run.skips.items()])
    excluded = [
        f"- {len(some)} × {escape_text(reason)}{f': {escape_text(where)}' if where else ''}"
        for reason, some, where in run.exclusions
    ]
    yield [*skips, *_list("Excluded combinations", excluded)]


def _list(title: str, items: list[str]) -> list[str]:
    """At most MOST_ITEMS items and the number of omitted ones; empty without items."""
    return [f"### {title}", "", *items[:MOST_ITEMS], *_rest(len(items)), ""] if items else []


def _bytes(lines: list[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


def escape_text(text: str) -> str:
    """Untrusted text, shown literally: no Markdown, no HTML, no @mentions."""
    safe = _cut(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", safe).replace("@", "@\u200b")


def _cut(text: str, most: int = _MOST_TEXT) -> str:
    line = one_line(text[: 10 * most])
    return line if len(line) <= most else f"{line[:most]}…"


def code(text: str, most: int = _MOST_TEXT) -> str:
    """A code span that the text cannot close. Not for tables, where | would end it."""
    line = _cut(text, most) or " "
    fence = "`" * (_longest_fence(line) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"


def fenced(text: str) -> list[str]:
    """A code block that the text cannot close."""
    shown = strip_controls(shorten(text, _MOST_EVIDENCE)).rstrip("\n")
    fence = "`" * max(3, _longest_fence(shown) + 1)
    return [f"{fence}text", *shown.split("\n"), fence]


def _longest_fence(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _head(run: RunView) -> list[str]:
    counts = [f"{SYMBOLS[verdict.value].emoji} {number} {verdict.value}" for verdict, number in run.counts.items()]
    if run.flaky:
        counts.append(f"{SYMBOLS['flaky'].glyph} {len(run.flaky)} flaky")
    if run.excluded:
        counts.append(run.not_run)
    total = f"{count(len(run.cells), 'cell')} in {duration_text(run.seconds)}"
    lines = [
        f"## {SYMBOLS[run.verdict.value].emoji} {escape_text(run.suite)}: {run.verdict.value}",
        "",
        " · ".join([total, *counts, f"run {code(run.run)}"]),
        "",
    ]
    if run.interrupted:
        lines += [f"**The run was interrupted: {run.undone} of {count(len(run.cells), 'cell')} did not finish.**", ""]
    return lines


def _causes(run: RunView) -> list[str]:
    if not run.causes:
        return []
    blocks = []
    for cause in run.causes[:MOST_ITEMS]:
        text = f"{SYMBOLS[cause.verdict.value].emoji} **{len(cause.hashes)}** {escape_text(cause.text)}"
        news = f" · {escape_text(cause.news_text)}" if cause.news_text else ""
        blocks.append([f"- {text}<br>{escape_text(cause.where)}{news}"])
    shown = _fitting(blocks, _SHARES["causes"], len(run.causes), "cause")
    more = _rest(len(run.causes)) if len(shown) == MOST_ITEMS else []
    return [f"### {run.causes_sentence}", "", *shown, *more, ""]


def _news(run: RunView) -> list[str]:
    blocks = [[f"- {escape_text(sentence)}"] for sentence in run.news]
    title = f"### Changes {escape_text(run.since)}"
    return [title, "", *_fitting(blocks, _SHARES["news"], len(blocks), "line"), ""] if blocks else []


def _matrices(run: RunView) -> list[str]:
    """The grid of each trial; if it is too large, as many rows with a failure as fit."""
    room = _SHARES["grid"] - _REST
    lines: list[str] = []
    for number, matrix in enumerate(run.matrices):
        title = f"### {escape_text(matrix.trial)}" + (f" ({escape_text(matrix.fixed)})" if matrix.fixed else "")
        block = [title, "", *_table(matrix, room - _bytes([title]) - _REST), ""]
        room -= _bytes(block)
        if room < 0:
            return [*lines, f"_… and {count(len(run.matrices) - number, 'more grid')} in `report.html`._", ""]
        lines += block
    return lines


def _table(matrix: Matrix[CellView], room: int) -> list[str]:
    titles = [escape_text(title) or " " for title in (matrix.row_title, *matrix.columns)]
    head = [f"| {' | '.join(titles)} |", "| --- " + "| :-: " * len(matrix.columns) + "|"]
    rows = [_row(matrix, row) for row in range(len(matrix.rows))]
    if _bytes([*head, *rows]) <= room:
        return [*head, *rows]
    bad = sorted(bad_rows(matrix))
    sizes = itertools.accumulate((_bytes([rows[row]]) for row in bad), initial=_bytes(head))
    shown = [row for row, size in zip(bad, itertools.islice(sizes, 1, None), strict=True) if size <= room]
    size = f"{len(matrix.rows)} × {len(matrix.columns)}"
    if not shown:
        return [f"_{size}: too large for this page; see `report.html`._"]
    some = "only rows" if len(shown) == len(bad) else f"{len(shown)} of {count(len(bad), 'row')}"
    return [*head, *(rows[row] for row in shown), "", f"_{size}: {some} with a failure; see `report.html` for all._"]


def _row(matrix: Matrix[CellView], row: int) -> str:
    signs = []
    for column in range(len(matrix.columns)):
        cell = matrix.cells.get((row, column))
        if cell:
            new = " 🆕" if cell.newly_bad else ""
            signs.append(SYMBOLS[cell.verdict.value].emoji + (" ↻" if cell.flaky else "") + new)
        else:
            signs.append(SYMBOLS["excluded"].emoji if (row, column) in matrix.excluded else " ")
    return "| " + " | ".join([escape_text(matrix.rows[row]), *signs]) + " |"


def _case_table(table: JudgedTable) -> list[str]:
    size = f"{count(table.cases, 'case')} × {count(table.configurations, 'configuration')}"
    agreements = ", ".join(f"{number} {escape_text(word)}" for word, number in table.agreements.items())
    lines = [f"### {escape_text(table.trial)}: cases", "", f"{size}: {agreements}", ""]
    if table.cases > _MOST_CASES or table.configurations > len(table.columns):
        return [*lines, "_Too many for this page; see `report.html`._", ""]
    lines += ["| case | " + " | ".join(escape_text(label) for label, _ in table.columns) + " |"]
    lines += ["| --- " * (len(table.columns) + 1) + "|"]
    for row in table.rows:
        fields = [f"{SYMBOLS[of.verdict.value].emoji} {escape_text(of.agreement)}" if of else "–" for of in row.fields]
        lines.append(f"| {' | '.join([escape_text(row.name) or ' ', *fields])} |")
    return [*lines, ""]


def _failure(cell: CellView) -> list[str]:
    findings = cell.bad_titles
    head = f"{SYMBOLS[cell.verdict.value].emoji} <b>{_html(cell.id)}</b> {_html(cell.problem[:200])}"
    lines = ["<details>", f"<summary>{head}</summary>", ""]
    blocks = [_finding(finding, title) for title, finding in findings[:_MOST_FINDINGS]]
    lines += _fitting(blocks, MOST_FAILURE, len(findings), "finding")
    if not findings:
        attempts = [f"- {escape_text(line)}" for line in cell.attempt_lines]
        lines += [*(attempts or [escape_text(cell.why)]), ""]
    if cell.news_text:
        lines += [f"Since: {escape_text(cell.news_text)}", ""]
    for log in cell.details().logs:
        lines += [f"Log: {code(log, MOST_COMMAND)}", ""]
    return [*lines, f"Rerun: {code(cell.rerun, MOST_COMMAND)}", "", "</details>", ""]


def _html(text: str) -> str:
    safe = _cut(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", safe).replace("@", "@\u200b")


def _finding(finding: Finding, named: str) -> list[str]:
    what = f"**{escape_text(named)}** " + (f"({escape_text(finding.class_)}) " if finding.class_ else "")
    lines = [what + escape_text(finding.message), ""]
    return [*lines, *fenced(finding.evidence), ""] if finding.evidence.strip() else lines


def _rest(number: int) -> list[str]:
    return [f"- … and {number - MOST_ITEMS:,} more"] if number > MOST_ITEMS else []
