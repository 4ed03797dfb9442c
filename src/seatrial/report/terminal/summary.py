"""The summary of a run for a terminal: matrix, failures with their evidence and the way to run them again, totals."""

import os
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from seatrial.job import Excluded, Finding, RunResults, Verdict
from seatrial.job.units import count
from seatrial.report.terminal.cell import cell_lines
from seatrial.report.terminal.lines import Line, glyph, is_ascii, matrix_lines, more_lines, paint, wants_colour
from seatrial.report.view.cell import CellDetails, CellView
from seatrial.report.view.run import RunView, bad_rows, first_rows
from seatrial.report.view.words import axes_text, duration_text, first_line, fit, one_line, width

_MOST_CELLS = 15  # failed cells shown in full; the others get a line each
_MOST_LINES = 30  # such lines, xfails, flaky cells and excluded combinations: of each
_MOST_FINDINGS = 10  # of one cell
_MOST_ROWS = 50  # of one matrix
LAST_LINES = 30  # causes, what is new and the totals stand last, in as many lines as a small terminal has


def print_summary(results: RunResults, folder: Path, stream: TextIO | None = None, verbose: bool = False) -> None:
    """`verbose`: all that is known of each cell that did not pass."""
    run = RunView(results, folder, _shown(folder))
    _print(lambda columns: summary_lines(run, columns, verbose), stream)


def print_cells(results: RunResults, folder: Path) -> None:
    """All that is known of each cell of these results, and nothing of the run."""
    cells = RunView(results, folder, _shown(folder)).cells
    _print(lambda columns: [line for cell in cells for line in [*cell_lines(cell, columns), []]][:-1])


def _print(made: Callable[[int], list[Line]], stream: TextIO | None = None) -> None:
    out = stream or sys.stdout
    columns = min(shutil.get_terminal_size((100, 24)).columns, 140)
    out.write(paint(made(columns), wants_colour(out), is_ascii(out)))
    out.flush()


def summary_lines(run: RunView, columns: int, verbose: bool = False) -> list[Line]:
    """`columns` wide, except for what is there to be copied: ids, paths and commands are never cut or broken."""
    lines: list[Line] = [[], *_matrix(run, columns), *_metrics_in_short(run, columns)]
    for cell in run.failures if verbose else run.failures[:_MOST_CELLS]:
        lines += [*(cell_lines if verbose else _failure)(cell, columns), []]
    lines += [] if verbose else _more_failures(run, columns)
    lines += _flaky(run, columns)
    lines += _xfails(run, columns)
    lines += _not_run(run, columns)
    lines += _moved(run, columns)
    end = [*_news(run, columns), *_totals(run, columns)]
    return [*lines, *_causes(run, columns, LAST_LINES - len(end)), *end]


def _shown(folder: Path) -> str:
    """The folder as a person here would type it."""
    relative = os.path.relpath(folder)
    return str(folder) if relative.startswith("..") else relative


def _matrix(run: RunView, columns: int) -> list[Line]:
    states = {cell.id: _state(cell) for cell in run.cells}
    lines: list[Line] = []
    for matrix in run.matrices:
        rows = first_rows(matrix, max(_MOST_ROWS, len(bad_rows(matrix))))
        lines.append([(one_line(matrix.trial), "bold"), (f"  {one_line(matrix.fixed)}", "dim")])
        lines += matrix_lines(matrix, states, columns, rows)
        if len(rows) < len(matrix.rows):
            lines.append([(f"… and {count(len(matrix.rows) - len(rows), 'more row')} without a failure", "dim")])
        lines.append([])
    return lines


def _metrics_in_short(run: RunView, columns: int) -> list[Line]:
    told = run.told_in_short
    lines: list[Line] = []
    for cell, text in list(told.items())[:_MOST_LINES]:
        head: Line = [(f"  {one_line(cell)}", "")]
        fits = width(cell) + 4 + width(text) <= columns
        lines += [[*head, (f"  {text}", "dim")]] if fits else [head, *_wrapped(text, columns, "dim")]
    return [[("metrics", "bold")], *lines, *more_lines(len(told) - _MOST_LINES), []] if told else []


def _state(cell: CellView) -> tuple[str, str]:
    took = duration_text(cell.seconds)
    if cell.verdict is Verdict.PASSED:
        return "passed", f"{took} ↻ flaky" if cell.flaky else took
    return cell.verdict.value, cell.verdict.value


def _failure(cell: CellView, columns: int) -> list[Line]:
    details = cell.details()
    mark, colour = glyph(cell.verdict.value)
    lines: list[Line] = [[(f"{mark} {cell.verdict.value}", f"bold {colour}"), (f"  {one_line(cell.id)}", "bold")]]
    findings = cell.bad_findings
    for finding in findings[:_MOST_FINDINGS]:
        lines += _finding(finding, cell.title(finding), columns)
    lines += more_lines(len(findings) - _MOST_FINDINGS, "finding that did not pass", "findings that did not pass")
    if not findings:
        lines += _wrapped(cell.why, columns)
        lines += [line for place in cell.attempt_lines[-3:] for line in _wrapped(place, columns, "dim")]
    if metrics := _metrics(cell, details):
        lines.append([("  where  ", "dim"), (metrics, "dim")])
    if news := cell.news_text:
        first, *more = _parts(news, columns - 9, 2)
        lines += [[("  since  ", "dim"), (first, "")], *([("         ", ""), (part, "")] for part in more)]
    lines += [[("  log    ", "dim"), (log, "")] for log in details.logs]
    lines.append([("  again  ", "dim"), (cell.rerun, "cyan")])
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


def _metrics(cell: CellView, details: CellDetails) -> str:
    if not cell.last:
        return ""
    parts = [str(cell.last.place), duration_text(cell.seconds), *details.used]
    return " · ".join(one_line(part) for part in parts if part)


def _more_failures(run: RunView, columns: int) -> list[Line]:
    rest = run.failures[_MOST_CELLS:]
    if not rest:
        return []
    lines: list[Line] = [[(f"{count(len(rest), 'more cell')} that did not pass", "bold")]]
    for cell in rest[:_MOST_LINES]:
        mark, colour = glyph(cell.verdict.value)
        line: Line = [(f"  {mark} ", colour), (f"/{cell.hash} {one_line(cell.id)}", "")]
        room = columns - sum(width(text) for text, _ in line) - 2
        lines.append([*line, (f"  {fit(cell.problem, room)}" if room > 10 else "", "dim")])
    if len(rest) > _MOST_LINES:
        lines.append([(f"  … and {len(rest) - _MOST_LINES:,} more: all are in report.html and results.json", "dim")])
    return [*lines, [("  again  ", "dim"), (run.rerun_failed, "cyan")], []]


def _flaky(run: RunView, columns: int) -> list[Line]:
    if not run.flaky:
        return []
    lines: list[Line] = [[(f"{glyph('flaky')[0]} flaky: passed on a retry", "bold yellow")]]
    for cell in run.flaky[:_MOST_LINES]:
        lines.append([(f"  {one_line(cell.id)}", "")])
        lines += [line for place in cell.attempt_lines for line in _wrapped(place, columns, "dim")]
    return [*lines, *more_lines(len(run.flaky) - _MOST_LINES), []]


def _xfails(run: RunView, columns: int) -> list[Line]:
    """Each known failure once, with the cells that it was seen in."""
    if not run.xfails:
        return []
    mark, colour = glyph("xfail")
    lines: list[Line] = [[(f"{mark} xfail: failed as declared", f"bold {colour}")]]
    groups: dict[tuple[str, str, str], list[str]] = {}
    for cell, finding in run.xfails:
        what = (cell.title(finding), finding.class_, one_line(finding.message or cell.reason))
        groups.setdefault(what, []).append(one_line(cell.id))
    for (step, kind, message), cells in list(groups.items())[:_MOST_LINES]:
        lines.append(
            [(f"  {len(cells):>4} × ", "dim"), (fit(step, columns - 9 - len(kind) - 2), "bold"), (f"  {kind}", colour)]
        )
        lines += [[(f"     {text}", "") for text, _ in line] for line in _wrapped(message, columns - 5)]
        named = "; ".join(cells[:2]) + (" …" if len(cells) > 2 else "")
        lines.append([(f"         {fit(named, columns - 9)}", "dim")])
    return [*lines, *more_lines(len(groups) - _MOST_LINES), []]


def _causes(run: RunView, columns: int, room: int) -> list[Line]:
    """What all failures come down to, in so many lines."""
    if not run.causes:
        return []
    shown = run.causes[: max(1, (room - 3) // 2)]  # besides the sentence, how many more there are, and a blank line
    lines: list[Line] = [[(run.causes_sentence, "bold")]]
    for cause in shown:
        mark, colour = glyph(cause.verdict.value)
        lines.append([(f"{len(cause.hashes):>5} {mark} ", colour), (fit(one_line(cause.text), columns - 8), "")])
        news = f" · {cause.news_short}" if cause.news_short else ""
        lines.append([(f"        {fit(cause.where + news, columns - 8)}", "dim")])
    return [*lines, *more_lines(len(run.causes) - len(shown), "cause"), []]


def _news(run: RunView, columns: int) -> list[Line]:
    lines: list[Line] = [[(f"  {fit(sentence, columns - 2)}", "")] for sentence in run.news]
    return [[(f"what is new {run.since}", "bold")], *lines, []] if lines else []


def _moved(run: RunView, columns: int) -> list[Line]:
    lines = [line for sentence in run.moved for line in _wrapped(sentence, columns)]
    lines += [line for text in run.regressions[:_MOST_LINES] for line in _wrapped(text, columns, "yellow")]
    lines += more_lines(len(run.regressions) - _MOST_LINES)
    return [[("what moved", "bold")], *lines, []] if lines else []


def _not_run(run: RunView, columns: int) -> list[Line]:
    lines: list[Line] = []
    if run.skips:
        mark, colour = glyph("skipped")
        lines.append([(f"{mark} skipped", f"bold {colour}")])
        for reason, number in list(run.skips.items())[:_MOST_LINES]:
            first, *more = _parts(reason, columns - 9, 3) or [""]
            lines.append([(f"  {number:>4} × ", "dim"), (fit(first, columns - 9), "")])
            lines += [[(f"         {fit(part, columns - 9)}", "")] for part in more]
        lines += [*more_lines(len(run.skips) - _MOST_LINES, "reason"), []]
    if run.excluded_by_reason:
        lines.append([(f"{glyph('excluded')[0]} not run", "bold")])
        for reason, excluded in list(run.excluded_by_reason.items())[:_MOST_LINES]:
            named = "; ".join(_excluded_text(combination) for combination in excluded[:2]) + (
                " …" if len(excluded) > 2 else ""
            )
            lines.append([(f"  {len(excluded):>4} × ", "dim"), (fit(reason, columns - 9), "")])
            lines.append([(f"         {fit(one_line(named), columns - 9)}", "dim")])
        lines += [*more_lines(len(run.excluded_by_reason) - _MOST_LINES, "reason"), []]
    return lines


def _excluded_text(combination: Excluded) -> str:
    return f"{combination.trial}[{axes_text(combination.axes.items())}]" if combination.axes else combination.trial


def _totals(run: RunView, columns: int) -> list[Line]:
    mark, colour = glyph(run.verdict.value)
    counts: Line = [(count(len(run.cells), "cell"), "bold")]
    for verdict, number in run.counts.items():
        sign, tone = glyph(verdict.value)
        counts += [("   ", ""), (f"{sign} {number} {verdict.value}", tone)]
        if verdict is Verdict.PASSED and run.flaky:
            counts.append((f" ({len(run.flaky)} flaky)", "yellow"))
    if run.unjudged:
        counts += [("   ", ""), (f"{glyph('skipped')[0]} {count(run.unjudged, 'metric')} not judged", "yellow")]
    if run.excluded:
        counts += [("   ", ""), (f"{glyph('excluded')[0]} {len(run.excluded):,} excluded", "dim")]
    head: Line = [
        (f"{mark} {run.verdict.value}", f"bold {colour}"),
        (f"  {one_line(run.suite)}", "bold"),
        (f"  {duration_text(run.seconds)}  run {run.run}", "dim"),
    ]
    if run.interrupted:
        head.append(("  interrupted", "yellow"))
    lines = [[("─" * columns, "dim")], head, *_broken(counts, columns)]
    if run.interrupted and run.undone:
        lines.append([(f"{count(run.undone, 'cell')} not done: ", "yellow"), (run.rerun_failed, "cyan")])
    if (run.folder / "report.html").is_file():
        lines.append([(f"{run.base}/report.html", "cyan")])
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
