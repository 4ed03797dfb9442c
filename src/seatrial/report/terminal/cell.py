"""All that is known of one cell, for a terminal: attempts, every finding with its evidence, figures, files, the end of
its log."""

from seatrial.job import AttemptResult, Finding, RunResults, figure_text, figures
from seatrial.job.units import count
from seatrial.report.terminal.lines import Line, glyph
from seatrial.report.view.cell import CellView
from seatrial.report.view.changes import cell_news_text
from seatrial.report.view.run import finding_title, rerun_command, why_of
from seatrial.report.view.words import duration_text, fit, one_line, pad, shorten, size_text, strip_controls, width

_MOST_EVIDENCE = 8_000  # characters of one finding
MOST_LOG_LINES = 40
_MOST_FILES = 20


def cell_lines(results: RunResults, view: CellView, columns: int) -> list[Line]:
    cell = view.result
    mark, colour = glyph(cell.verdict.value)
    lines: list[Line] = [
        [
            (f"{mark} {cell.verdict.value}", f"bold {colour}"),
            (f"  {one_line(cell.id)}", "bold"),
            (f"  /{cell.hash}{'  flaky' if cell.flaky else ''}", "dim"),
        ]
    ]
    if cell.why or not (cell.findings or cell.verdict.good):
        lines.append([(f"  {why_of(cell)}", "")])
    if news := cell_news_text(cell):
        lines.append([("  since  ", "dim"), (news, "")])
    for attempt in cell.attempts:
        lines += _attempt(attempt, alone=len(cell.attempts) == 1)
    if resources := _resources(view):
        lines.append([("  used   ", "dim"), (resources, "")])
    for finding in cell.findings:
        lines += _finding(finding, view, columns)
    lines += _figures(view)
    lines += _files(view)
    lines += _logs(view, columns)
    return [*lines, [("  again  ", "dim"), (rerun_command(results, cell), "cyan")]]


def _attempt(attempt: AttemptResult, alone: bool) -> list[Line]:
    mark, colour = glyph(attempt.verdict.value)
    line: Line = [(f"  attempt {attempt.number}  ", "dim"), (f"{mark} {attempt.verdict.value}", colour)]
    line.append((f"  {one_line(str(attempt.place))}  {duration_text(attempt.seconds)}", ""))
    lines = [line]
    if attempt.stages:
        first_s = attempt.stages[0].wall_s
        times = (f"{one.stage.value} +{duration_text(max(0.0, one.wall_s - first_s))}" for one in attempt.stages)
        lines.append([(f"    {', '.join(times)}", "dim")])
    why = one_line(attempt.why or attempt.exit.message)
    if why and not attempt.verdict.good and not alone:  # else it is the cell's
        lines.append([(f"    {why}", "")])
    return lines


def _resources(view: CellView) -> str:
    parts = [f"{duration_text(view.cpu_s)} CPU"] if view.cpu_s is not None else []
    parts += [f"peak {size_text(view.peak_memory_bytes)}"] if view.peak_memory_bytes else []
    return ", ".join(parts)


def _finding(finding: Finding, view: CellView, columns: int) -> list[Line]:
    mark, colour = glyph(finding.verdict.value)
    took = duration_text(view.step_seconds(finding.step))
    line: Line = [(f"  {mark} ", colour), (finding_title(finding, view.result), "bold")]
    line += [(f"  {took}", "dim")] if took else []
    line += [(f"  {one_line(finding.class_)}", colour)] if finding.class_ else []
    message = one_line(finding.message)
    lines = [line]
    if message and sum(width(text) for text, _ in line) + 2 + width(message) <= columns:
        line.append((f"  {message}", ""))
    elif message:
        lines.append([(f"    {message}", "")])
    if finding.evidence and not finding.verdict.good:
        proof = shorten(strip_controls(finding.evidence), _MOST_EVIDENCE).rstrip().split("\n")
        lines += _quoted(proof[1:] if proof[0].strip() == message else proof, columns)
    return lines


def _quoted(lines: list[str], columns: int) -> list[Line]:
    return [[("    │ ", "dim"), (fit(line.replace("\t", "    "), columns - 6), "")] for line in lines]


def _figures(view: CellView) -> list[Line]:
    every = list(figures(view.result.metrics))
    judged = [figure for figure in every if figure.better]
    name = max([width(one_line(figure.name)) for figure in judged], default=0)
    lines: list[Line] = [
        [("  figure ", "dim"), (f"{pad(one_line(figure.name), name)}  {figure_text(figure.value, figure.unit)}", "")]
        for figure in judged
    ]
    others = len(every) - len(judged)
    text = f"{count(others, 'figure is', 'figures are')} not judged; --json has them"
    return [*lines, *([[(f"  {text}", "dim")]] if others else [])]


def _files(view: CellView) -> list[Line]:
    kept = view.kept
    lines: list[Line] = [[("  file   ", "dim"), (f"{view.base}/{one_line(name)}", "")] for name in kept[:_MOST_FILES]]
    more = len(kept) - _MOST_FILES
    return [*lines, *([[(f"  … and {count(more, 'more file')}", "dim")]] if more > 0 else [])]


def _logs(view: CellView, columns: int) -> list[Line]:
    lines: list[Line] = [[("  log    ", "dim"), (log, "")] for log in view.logs]
    tails = view.log_tails()
    for part, text in tails.items():
        tail = strip_controls(text).rstrip().split("\n")
        cut = tail[-MOST_LOG_LINES // len(tails) :]
        some = f"… the last {count(len(cut), 'line')}" if len(cut) < len(tail) else ""
        head = f"== {part} {some}".rstrip() if part else some
        lines += _quoted([*([head] if head else []), *cut], columns) if tail != [""] else []
    return lines
