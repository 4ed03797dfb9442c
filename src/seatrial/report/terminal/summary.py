"""The summary of a run for a terminal: matrix, failures with their evidence and the way to run them again, totals."""

import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from seatrial.job import CellResult, Finding, Hole, RunResults, Verdict
from seatrial.job.units import count
from seatrial.report.terminal.cell import cell_lines
from seatrial.report.terminal.lines import Line, glyph, is_ascii, matrix_lines, paint, wants_colour
from seatrial.report.view.cell import CellView, read_cell
from seatrial.report.view.changes import cause_news_text, cell_news_text, news_sentences, since_text
from seatrial.report.view.grid import Matrix, matrices
from seatrial.report.view.run import (
    RunSummary,
    bad_findings,
    cause_place,
    causes_sentence,
    describe_attempts,
    finding_title,
    recent_changes,
    regressions_of_run,
    rerun_command,
    summarize,
    told_in_short,
    why_of,
)
from seatrial.report.view.words import axes_text, duration_text, first_line, fit, one_line, size_text, width

_MOST_CELLS = 15  # failed cells shown in full; the others get a line each
_MOST_LINES = 30  # such lines, xfails, flaky cells and holes: of each
_MOST_FINDINGS = 10  # of one cell
_MOST_ROWS = 50  # of one matrix
LAST_LINES = 30  # causes, what is new and the totals stand last, in as many lines as a small terminal has


def print_summary(results: RunResults, folder: Path, stream: TextIO | None = None, verbose: bool = False) -> None:
    """`verbose`: all that is known of each cell that did not pass."""
    _print(lambda columns: summary_lines(results, folder, columns, verbose), stream)


def print_cells(results: RunResults, folder: Path) -> None:
    """All that is known of each cell of these results, and nothing of the run."""
    views = [read_cell(folder, cell, _shown(folder)) for cell in results.cells]
    _print(lambda columns: [line for view in views for line in [*cell_lines(results, view, columns), []]][:-1])


def _print(made: Callable[[int], list[Line]], stream: TextIO | None = None) -> None:
    out = stream or sys.stdout
    columns = min(shutil.get_terminal_size((100, 24)).columns, 140)
    out.write(paint(made(columns), wants_colour(out), is_ascii(out)))
    out.flush()


def summary_lines(results: RunResults, folder: Path, columns: int, verbose: bool = False) -> list[Line]:
    """`columns` wide, except for what is there to be copied: ids, paths and commands are never cut or broken."""
    summary = summarize(results)
    lines: list[Line] = [[], *_matrix(results, columns), *_figures_in_short(results, columns)]
    for cell in summary.failures if verbose else summary.failures[:_MOST_CELLS]:
        view = read_cell(folder, cell, _shown(folder))
        lines += [*(cell_lines if verbose else _failure)(results, view, columns), []]
    lines += [] if verbose else _more_failures(results, summary, columns)
    lines += _flaky(summary, columns)
    lines += _xfails(summary, columns)
    lines += _not_run(summary, columns)
    lines += _moved(folder, columns)
    end = [*_news(results, columns), *_totals(results, summary, folder, columns)]
    return [*lines, *_causes(results, columns, LAST_LINES - len(end)), *end]


def _shown(folder: Path) -> str:
    """The folder as a person here would type it."""
    relative = os.path.relpath(folder)
    return str(folder) if relative.startswith("..") else relative


def _matrix(results: RunResults, columns: int) -> list[Line]:
    states = {cell.id: _state(cell) for cell in results.cells}
    bad_cells = {cell.id for cell in results.cells if not cell.verdict.good}
    lines: list[Line] = []
    for matrix in matrices(results.cells, results.holes, results.axes):
        rows = _rows(matrix, bad_cells)
        lines.append([(one_line(matrix.trial), "bold"), (f"  {one_line(matrix.fixed)}", "dim")])
        lines += matrix_lines(matrix, states, columns, rows)
        if len(rows) < len(matrix.rows):
            lines.append([(f"… and {count(len(matrix.rows) - len(rows), 'more row')} without a failure", "dim")])
        lines.append([])
    return lines


def _figures_in_short(results: RunResults, columns: int) -> list[Line]:
    told = told_in_short(results)
    lines: list[Line] = []
    for cell, text in list(told.items())[:_MOST_LINES]:
        head: Line = [(f"  {one_line(cell)}", "")]
        fits = width(cell) + 4 + width(text) <= columns
        lines += [[*head, (f"  {text}", "dim")]] if fits else [head, *_wrapped(text, columns, "dim")]
    return [[("figures", "bold")], *lines, *_rest(len(told)), []] if told else []


def _rows(matrix: Matrix, bad_cells: set[str]) -> list[int]:
    """All rows, or when there are too many those with failures and then the first others."""
    if len(matrix.rows) <= _MOST_ROWS:
        return list(range(len(matrix.rows)))
    first = {row for (row, _), cell in matrix.cells.items() if cell in bad_cells}
    return sorted(sorted(range(len(matrix.rows)), key=lambda row: row not in first)[: max(_MOST_ROWS, len(first))])


def _state(cell: CellResult) -> tuple[str, str]:
    took = duration_text(cell.attempts[-1].seconds) if cell.attempts else ""
    if cell.verdict is Verdict.PASSED:
        return "passed", f"{took} ↻ flaky" if cell.flaky else took
    return cell.verdict.value, cell.verdict.value


def _failure(results: RunResults, view: CellView, columns: int) -> list[Line]:
    cell = view.result
    mark, colour = glyph(cell.verdict.value)
    lines: list[Line] = [[(f"{mark} {cell.verdict.value}", f"bold {colour}"), (f"  {one_line(cell.id)}", "bold")]]
    findings = bad_findings(cell.findings)
    for finding in findings[:_MOST_FINDINGS]:
        lines += _finding(finding, finding_title(finding, cell), columns)
    if len(findings) > _MOST_FINDINGS:
        lines.append([(f"  … and {count(len(findings) - _MOST_FINDINGS, 'more finding')} that did not pass", "dim")])
    if not findings:
        lines += _wrapped(why_of(cell), columns)
        lines += [line for place in describe_attempts(cell)[-3:] for line in _wrapped(place, columns, "dim")]
    if figures := _figures(view):
        lines.append([("  where  ", "dim"), (figures, "dim")])
    if news := cell_news_text(cell):
        first, *more = _parts(news, columns - 9, 2)
        lines += [[("  since  ", "dim"), (first, "")], *([("         ", ""), (part, "")] for part in more)]
    lines += [[("  log    ", "dim"), (log, "")] for log in view.logs]
    lines.append([("  again  ", "dim"), (rerun_command(results, cell), "cyan")])
    return lines


def _finding(finding: Finding, named: str, columns: int) -> list[Line]:
    mark, colour = glyph(finding.verdict.value)
    class_ = f"  {fit(one_line(finding.class_), 20)}" if finding.class_ else ""
    step = fit(named, columns - 4 - width(class_))
    head: Line = [(f"  {mark} ", colour), (step, "bold"), (class_, colour)]
    message = one_line(finding.message)
    used = sum(width(text) for text, _ in head)
    lines = [head]
    if message and used + 2 + width(message) <= columns:
        head.append((f"  {message}", ""))
    elif message:
        lines += _wrapped(message, columns)
    if (evidence := first_line(finding.evidence)) and evidence not in message:
        lines += [[("    │ ", "dim"), (fit(part, columns - 6), colour)] for part in _parts(evidence, columns - 6, 2)]
    return lines


def _wrapped(text: str, columns: int, style: str = "") -> list[Line]:
    return [[(f"    {fit(part, columns - 4)}", style)] for part in _parts(text, columns - 4, 3)]


def _parts(text: str, columns: int, most: int) -> list[str]:
    return textwrap.wrap(text, max(columns, 20), max_lines=most, placeholder=" …")


def _figures(view: CellView) -> str:
    if not view.result.attempts:
        return ""
    parts = [str(view.result.attempts[-1].place), duration_text(view.seconds)]
    if view.cpu_s is not None:
        parts.append(f"{duration_text(view.cpu_s)} CPU")
    if view.peak_memory_bytes:
        parts.append(f"peak {size_text(view.peak_memory_bytes)}")
    return " · ".join(one_line(part) for part in parts if part)


def _more_failures(results: RunResults, summary: RunSummary, columns: int) -> list[Line]:
    rest = summary.failures[_MOST_CELLS:]
    if not rest:
        return []
    lines: list[Line] = [[(f"{count(len(rest), 'more cell')} that did not pass", "bold")]]
    for cell in rest[:_MOST_LINES]:
        mark, colour = glyph(cell.verdict.value)
        findings = bad_findings(cell.findings)
        what = one_line(f"{finding_title(findings[0], cell)}: {findings[0].message}") if findings else why_of(cell)
        line: Line = [(f"  {mark} ", colour), (f"/{cell.hash} {one_line(cell.id)}", "")]
        room = columns - sum(width(text) for text, _ in line) - 2
        lines.append([*line, (f"  {fit(what, room)}" if room > 10 else "", "dim")])
    if len(rest) > _MOST_LINES:
        lines.append([(f"  … and {len(rest) - _MOST_LINES:,} more: all are in report.html and results.json", "dim")])
    one = rerun_command(results, rest[0])
    all_failed = f"{one.rsplit(' --select', 1)[0]} --failed {results.run}"
    return [*lines, [("  again  ", "dim"), (all_failed, "cyan")], []]


def _flaky(summary: RunSummary, columns: int) -> list[Line]:
    if not summary.flaky:
        return []
    lines: list[Line] = [[(f"{glyph('flaky')[0]} flaky: passed on a retry", "bold yellow")]]
    for cell in summary.flaky[:_MOST_LINES]:
        lines.append([(f"  {one_line(cell.id)}", "")])
        lines += [line for place in describe_attempts(cell) for line in _wrapped(place, columns, "dim")]
    return [*lines, *_rest(len(summary.flaky)), []]


def _xfails(summary: RunSummary, columns: int) -> list[Line]:
    """Each known failure once, with the cells that it was seen in."""
    if not summary.xfails:
        return []
    mark, colour = glyph("xfail")
    lines: list[Line] = [[(f"{mark} xfail: failed as declared", f"bold {colour}")]]
    groups: dict[tuple[str, str, str], list[str]] = {}
    for cell, finding in summary.xfails:
        what = (finding_title(finding, cell), finding.class_, one_line(finding.message or cell.why))
        groups.setdefault(what, []).append(one_line(cell.id))
    for (step, kind, message), cells in list(groups.items())[:_MOST_LINES]:
        lines.append(
            [(f"  {len(cells):>4} × ", "dim"), (fit(step, columns - 9 - len(kind) - 2), "bold"), (f"  {kind}", colour)]
        )
        lines += [[(f"     {text}", "") for text, _ in line] for line in _wrapped(message, columns - 5)]
        named = "; ".join(cells[:2]) + (" …" if len(cells) > 2 else "")
        lines.append([(f"         {fit(named, columns - 9)}", "dim")])
    return [*lines, *_rest(len(groups)), []]


def _causes(results: RunResults, columns: int, room: int) -> list[Line]:
    """What all failures come down to, in so many lines."""
    if not results.causes:
        return []
    shown = results.causes[: max(1, (room - 3) // 2)]  # besides the sentence, how many more there are, and a blank line
    lines: list[Line] = [[(causes_sentence(results), "bold")]]
    for cause in shown:
        mark, colour = glyph(cause.verdict.value)
        lines.append([(f"{len(cause.cells):>5} {mark} ", colour), (fit(one_line(cause.text), columns - 8), "")])
        news = cause_news_text(cause, short=True)
        where = cause_place(cause, results)
        lines.append([(f"        {fit(f'{where} · {news}' if news else where, columns - 8)}", "dim")])
    more = len(results.causes) - len(shown)
    return [*lines, *([[(f"  … and {count(more, 'more cause')}", "dim")]] if more > 0 else []), []]


def _news(results: RunResults, columns: int) -> list[Line]:
    lines: list[Line] = [[(f"  {fit(sentence, columns - 2)}", "")] for sentence in news_sentences(results)]
    return [[(f"what is new {since_text(results)}", "bold")], *lines, []] if lines else []


def _moved(folder: Path, columns: int) -> list[Line]:
    lines = [line for sentence in recent_changes(folder) for line in _wrapped(sentence, columns)]
    regressions = regressions_of_run(folder)
    lines += [line for text in regressions[:_MOST_LINES] for line in _wrapped(text, columns, "yellow")]
    lines += _rest(len(regressions))
    return [[("what moved", "bold")], *lines, []] if lines else []


def _not_run(summary: RunSummary, columns: int) -> list[Line]:
    lines: list[Line] = []
    if summary.skips:
        mark, colour = glyph("skipped")
        lines.append([(f"{mark} skipped", f"bold {colour}")])
        for reason, number in list(summary.skips.items())[:_MOST_LINES]:
            first, *more = _parts(reason, columns - 9, 3) or [""]
            lines.append([(f"  {number:>4} × ", "dim"), (fit(first, columns - 9), "")])
            lines += [[(f"         {fit(part, columns - 9)}", "")] for part in more]
        lines += [*_rest(len(summary.skips), "reason"), []]
    if summary.holes:
        lines.append([(f"{glyph('hole')[0]} holes: combinations that are not run", "bold")])
        for reason, holes in list(summary.holes.items())[:_MOST_LINES]:
            named = "; ".join(_hole(hole) for hole in holes[:2]) + (" …" if len(holes) > 2 else "")
            lines.append([(f"  {len(holes):>4} × ", "dim"), (fit(reason, columns - 9), "")])
            lines.append([(f"         {fit(one_line(named), columns - 9)}", "dim")])
        lines += [*_rest(len(summary.holes), "reason"), []]
    return lines


def _hole(hole: Hole) -> str:
    return f"{hole.trial}[{axes_text(hole.axes.items())}]" if hole.axes else hole.trial


def _rest(number: int, word: str = "") -> list[Line]:
    more = number - _MOST_LINES
    return [[(f"  … and {count(more, f'more {word}') if word else f'{more:,} more'}", "dim")]] if more > 0 else []


def _totals(results: RunResults, summary: RunSummary, folder: Path, columns: int) -> list[Line]:
    mark, colour = glyph(results.verdict.value)
    counts: Line = [(count(len(results.cells), "cell"), "bold")]
    for verdict, number in summary.counts.items():
        sign, tone = glyph(verdict.value)
        counts += [("   ", ""), (f"{sign} {number} {verdict.value}", tone)]
        if verdict is Verdict.PASSED and summary.flaky:
            counts.append((f" ({len(summary.flaky)} flaky)", "yellow"))
    if summary.unjudged:
        counts += [("   ", ""), (f"{glyph('skipped')[0]} {count(summary.unjudged, 'figure')} not judged", "yellow")]
    if results.holes:
        counts += [("   ", ""), (f"{glyph('hole')[0]} {count(len(results.holes), 'hole')}", "dim")]
    head: Line = [
        (f"{mark} {results.verdict.value}", f"bold {colour}"),
        (f"  {one_line(results.suite)}", "bold"),
        (f"  {duration_text(results.seconds)}  run {results.run}", "dim"),
    ]
    if results.interrupted:
        head.append(("  interrupted", "yellow"))
    lines = [[("─" * columns, "dim")], head, *_broken(counts, columns)]
    undone = sum(not cell.attempts or cell.verdict is Verdict.SKIPPED for cell in results.cells)
    if results.interrupted and undone:
        suite = shlex.quote(results.suite_path or results.suite)
        lines.append(
            [
                (f"{count(undone, 'cell')} not done: ", "yellow"),
                (f"seatrial run {suite} --failed {results.run}", "cyan"),
            ]
        )
    if (folder / "report.html").is_file():
        lines.append([(f"{_shown(folder)}/report.html", "cyan")])
    return lines


def _broken(line: Line, columns: int) -> list[Line]:
    """A line of counts, over several lines where one is too narrow."""
    lines: list[Line] = [[]]
    used = 0
    for text, style in line:
        if used + width(text) > columns:
            lines.append([("  ", "")])
            used = 2
        if text.strip() or used > 2:
            lines[-1].append((text, style))
            used += width(text)
    return lines
