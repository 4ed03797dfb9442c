"""The summary of a run for a terminal: matrix, failures with evidence and rerun commands, causes, totals."""

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TextIO

from seatrial.job import METRICS, Excluded, Finding, RunResults, Verdict
from seatrial.job.units import count
from seatrial.report.terminal.cell import cell_lines
from seatrial.report.terminal.lines import (
    Line,
    broken,
    glyph,
    is_ascii,
    matrix_lines,
    more_lines,
    paint,
    section,
    wants_colour,
)
from seatrial.report.view.cell import CellView
from seatrial.report.view.run import CauseView, RunView, bad_rows, first_rows
from seatrial.report.view.words import duration_text, first_line, fit, grouped, one_line, width

_MOST_CELLS = 5  # failed cells shown in full; of more, one of each cause
_MOST_LINES = 30  # lines per section
_MOST_FINDINGS = 10  # of one cell
_LEAST_ROWS, _MOST_ROWS = 6, 50  # of one matrix
LAST_LINES = 30  # for causes, changes and totals at the end, so that they fit on a small terminal
_SCREEN = 40  # lines: a matrix is shortened if failures do not fit below it


def print_summary(
    results: RunResults, folder: Path, stream: TextIO | None = None, verbose: bool = False, strict: int = 0
) -> None:
    """`verbose` shows full details of each cell that did not pass; `strict` is the number of problems that only
    --strict fails for."""
    run = RunView(results, folder, _shown(folder))
    _print(lambda columns: summary_lines(run, columns, verbose, strict), stream)


def print_cells(results: RunResults, folder: Path) -> None:
    """Prints full details of each cell, without the summary of the run."""
    cells = RunView(results, folder, _shown(folder)).cells
    _print(lambda columns: [line for cell in cells for line in [*cell_lines(cell, columns), []]][:-1])


def _print(made: Callable[[int], list[Line]], stream: TextIO | None = None) -> None:
    out = stream or sys.stdout
    columns = min(shutil.get_terminal_size((100, 24)).columns, 140)
    out.write(paint(made(columns), wants_colour(out), is_ascii(out)))
    out.flush()


def summary_lines(run: RunView, columns: int, verbose: bool = False, strict: int = 0) -> list[Line]:
    """`columns` wide, but ids, paths and commands are never cut or wrapped, so that they can be copied."""

    def metrics_in_short(cell: CellView) -> list[Line]:
        head: Line = [(f"  {one_line(cell.id)}", "")]
        fits = width(cell.id) + 4 + width(cell.headline) <= columns
        return [[*head, (f"  {cell.headline}", "dim")]] if fits else [head, *_wrapped(cell.headline, columns, "dim", 6)]

    measured = [cell for cell in run.cells if cell.verdict is Verdict.PASSED and cell.headline]
    lines = section("metrics", map(metrics_in_short, measured), _MOST_LINES)
    in_full = verbose or len(run.failures) <= _MOST_CELLS or not run.causes
    shown = run.failures[: None if verbose else _MOST_CELLS] if in_full else []
    for cell in shown:
        lines += [*(cell_lines if verbose else _failure)(cell, columns), []]
    lines += (
        more_lines(len(run.failures) - len(shown), "cell that did not pass", "cells that did not pass") if shown else []
    )
    title = f"{glyph('flaky')[0]} flaky: passed on a retry"
    flaky = [[[(f"  {one_line(cell.id)}", "")], *_attempts(cell.attempt_lines, columns)] for cell in run.flaky]
    lines += section(title, flaky, _MOST_LINES, style="bold yellow")
    lines += _xfails(run, columns)
    lines += _not_run(run, columns)
    lines += _moved(run, columns)
    changes = [[[(f"  {fit(text, columns - 2)}", "")]] for text in run.news]
    news = section(f"changes {run.since}", changes, len(changes))
    end = [*news, *_totals(run, columns, strict)]
    end = [*_causes(run, columns, LAST_LINES - len(end), examples=not in_full), *end]
    room = _SCREEN - len(end) if run.failures and not verbose else _MOST_ROWS
    return [[], *_matrix(run, columns, room), *lines, *end]


def _shown(folder: Path) -> str:
    """The path of the folder, relative if it is below the current one."""
    relative = os.path.relpath(folder)
    return str(folder) if relative.startswith("..") else relative


def _matrix(run: RunView, columns: int, room: int) -> list[Line]:
    states: dict[str, tuple[str, str]] = {}
    for cell in run.cells:
        beside = cell.verdict.value
        if cell.verdict is Verdict.PASSED:
            beside = f"{duration_text(cell.seconds)}{' ↻ flaky' if cell.flaky else ''}"
        states[cell.id] = cell.verdict.value, beside
    lines: list[Line] = []
    for matrix in run.matrices:
        head = len(matrix_lines(matrix, states, columns, [])) + 4  # and the title, a number of rows, blank lines
        rows = first_rows(matrix, max(_LEAST_ROWS, min(_MOST_ROWS, room // len(run.matrices) - head)))
        lines.append([(one_line(matrix.trial), "bold"), (f"  {one_line(matrix.fixed)}", "dim")])
        lines += matrix_lines(matrix, states, columns, rows)
        if hidden := len(matrix.rows) - len(rows):
            bad = len(bad_rows(matrix) - {*rows})
            lines.append([(f"… and {count(hidden, 'more row')}, {bad or 'none'} with failures", "dim")])
        lines.append([])
    return lines


def _failure(cell: CellView, columns: int) -> list[Line]:
    details = cell.details()
    mark, colour = glyph(cell.verdict.value)
    lines: list[Line] = [[(f"{mark} {cell.verdict.value}", f"bold {colour}"), (f"  {one_line(cell.id)}", "bold")]]
    findings = cell.bad_titles
    for title, finding in findings[:_MOST_FINDINGS]:
        lines += _finding(finding, title, columns)
    lines += more_lines(len(findings) - _MOST_FINDINGS, "finding that did not pass", "findings that did not pass")
    if not findings:
        lines += _wrapped(cell.why, columns)
        lines += _attempts(cell.attempt_lines[-3:], columns)
    if cell.last:
        parts = [str(cell.last.place), duration_text(cell.seconds), *details.used]
        where = " · ".join(one_line(part) for part in parts if part)
        lines += [[("  where  ", "dim"), (where, "dim")]] if where else []
    if news := cell.news_text:
        first, *more = _parts(news, columns - 9, 2)
        lines += [[("  status ", "dim"), (first, "")], *([("         ", ""), (part, "")] for part in more)]
    lines += [[("  log    ", "dim"), (log, "")] for log in details.logs]
    lines.append([("  rerun  ", "dim"), (cell.rerun, "cyan")])
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


def _wrapped(text: str, columns: int, style: str = "", most: int = 3) -> list[Line]:
    return [[(f"    {fit(part, columns - 4)}", style)] for part in _parts(text, columns - 4, most)]


def _parts(text: str, columns: int, most: int) -> list[str]:
    return textwrap.wrap(text, max(columns, 20), max_lines=most, placeholder=" …", break_on_hyphens=False)


def _attempts(texts: Iterable[str], columns: int) -> list[Line]:
    return [line for text in texts for line in _wrapped(text, columns, "dim")]


def _xfails(run: RunView, columns: int) -> list[Line]:
    """Each expected failure once, with its cells."""
    mark, colour = glyph("xfail")
    groups = grouped(
        run.xfails, lambda one: (one[0].title(one[1]), one[1].class_, one_line(one[1].message or one[0].reason))
    )

    def group(item: tuple[tuple[str, str, str], list[tuple[CellView, Finding]]]) -> list[Line]:
        (step, kind, message), cells = item
        named = "; ".join(one_line(cell.id) for cell, _ in cells[:2]) + (" …" if len(cells) > 2 else "")
        return [
            [(f"  {len(cells):>4} × ", "dim"), (fit(step, columns - 9 - len(kind) - 2), "bold"), (f"  {kind}", colour)],
            *([(f"     {text}", "") for text, _ in line] for line in _wrapped(message, columns - 5)),
            [(f"         {fit(named, columns - 9)}", "dim")],
        ]

    return section(f"{mark} xfail: failed as expected", map(group, groups.items()), _MOST_LINES, style=f"bold {colour}")


def _causes(run: RunView, columns: int, room: int, examples: bool) -> list[Line]:
    """The causes of all failures in at most `room` lines. With `examples`, the first ones have one of their cells."""
    if not run.causes:
        return []
    lines: list[Line] = [[(run.causes_sentence, "bold")]]
    left = room - 4  # minus the sentence, the number of omitted causes, how to rerun all, and a blank line
    for place, cause in enumerate(run.causes):
        if place and left < 2:
            lines += more_lines(len(run.causes) - place, "cause")
            break
        mark, colour = glyph(cause.verdict.value)
        lines.append([(f"{len(cause.hashes):>5} {mark} ", colour), (fit(one_line(cause.text), columns - 8), "")])
        news = f" · {cause.news_short}" if cause.news_short else ""
        lines.append([(f"        {fit(cause.where + news, columns - 8)}", "dim")])
        left -= 2
        if examples and (place == 0 or left - 3 >= 2 * (len(run.causes) - place - 1)):
            example = _example(cause, columns)
            lines += example
            left -= len(example)
    return [*lines, *([[("  rerun all  ", "dim"), (run.rerun_failed, "cyan")]] if examples else []), []]


def _example(cause: CauseView, columns: int) -> list[Line]:
    cell, several = cause.cells[0], len(cause.hashes) > 1
    rerun = cause.rerun if len(cause.rerun) + 15 <= columns else cell.rerun
    shown = [("e.g.   ", one_line(cell.id), "")] if several else []  # else its place is the cell
    shown += [("log    ", log, "") for log in cell.details().logs[:1]]
    return [[(f"        {name}", "dim"), (text, style)] for name, text, style in [*shown, ("rerun  ", rerun, "cyan")]]


def _moved(run: RunView, columns: int) -> list[Line]:
    lines = [line for sentence in run.moved for line in _wrapped(sentence, columns)]
    lines += [line for text in run.regressions[:_MOST_LINES] for line in _wrapped(text, columns, "yellow")]
    lines += more_lines(len(run.regressions) - _MOST_LINES)
    return [[("metric changes", "bold")], *lines, []] if lines else []


def _not_run(run: RunView, columns: int) -> list[Line]:
    def skip(item: tuple[str, int]) -> list[Line]:
        reason, number = item
        first, *more = _parts(reason, columns - 9, 3) or [""]
        lines: list[Line] = [[(f"  {number:>4} × ", "dim"), (fit(first, columns - 9), "")]]
        return [*lines, *([(f"         {fit(part, columns - 9)}", "")] for part in more)]

    def exclusion(item: tuple[str, list[Excluded], str]) -> list[Line]:
        reason, excluded, where = item
        first: Line = [(f"  {len(excluded):>4} × ", "dim"), (fit(reason, columns - 9), "")]
        return [first, *([[(f"         {fit(where, columns - 9)}", "dim")]] if where else [])]

    mark, colour = glyph("skipped")
    skips = section(f"{mark} skipped", map(skip, run.skips.items()), _MOST_LINES, "reason", style=f"bold {colour}")
    title = f"{glyph('excluded')[0]} {'excluded or deselected' if 'deselected' in run.not_run else 'excluded'}"
    return [*skips, *section(title, map(exclusion, run.exclusions), _MOST_LINES, "reason")]


def _totals(run: RunView, columns: int, strict: int) -> list[Line]:
    verdict_text = run.verdict.value
    mark, colour = glyph(verdict_text)
    if strict and run.verdict.good:  # the line agrees with the exit code
        verdict_text = f"{verdict_text}, but --strict found {count(strict, 'problem')}"
        mark, colour = glyph("failed")
    counts: Line = [(count(len(run.cells), "cell"), "bold")]
    for verdict, number in run.counts.items():
        sign, tone = glyph(verdict.value)
        counts += [("   ", ""), (f"{sign} {number} {verdict.value}", tone)]
        if verdict is Verdict.PASSED and run.flaky:
            counts.append((f" ({len(run.flaky)} flaky)", "yellow"))
    # Metrics that have a baseline but were not checked.
    found = [one for cell in run.cells if cell.verdict is not Verdict.SKIPPED for one in cell.findings]
    if unjudged := sum(one.verdict is Verdict.SKIPPED and one.step == METRICS for one in found):
        counts += [("   ", ""), (f"{glyph('skipped')[0]} {count(unjudged, 'metric')} not checked", "yellow")]
    if run.excluded:
        counts += [("   ", ""), (f"{glyph('excluded')[0]} {run.not_run}", "dim")]
    head: Line = [
        (f"{mark} {verdict_text}", f"bold {colour}"),
        (f"  {one_line(run.suite)}", "bold"),
        (f"  {duration_text(run.seconds)}  run {run.run}", "dim"),
    ]
    lines = [[("─" * columns, "dim")], head, *broken(counts, columns)]
    if run.interrupted and run.undone:
        lines.append(
            [
                (f"{count(run.undone, 'cell')} not finished; to run them and the failed ones: ", "yellow"),
                (run.rerun_failed, "cyan"),
            ]
        )
    if (run.folder / "report.html").is_file():
        lines.append([(f"{run.base}/report.html", "cyan")])
    return lines
