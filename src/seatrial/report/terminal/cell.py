"""Full details of one cell for a terminal: attempts, findings with evidence, metrics, files, the end of its log."""

from seatrial.job import AttemptResult, Finding, value_text
from seatrial.job.units import count
from seatrial.report.terminal.lines import Line, glyph, more_lines
from seatrial.report.view.cell import CellDetails, CellView, attempt_why
from seatrial.report.view.words import duration_text, fit, one_line, pad, shorten, strip_controls, width

_MOST_EVIDENCE = 8_000  # characters of one finding
MOST_LOG_LINES = 40
_MOST_FILES = 20


def cell_lines(cell: CellView, columns: int) -> list[Line]:
    details = cell.details()
    mark, colour = glyph(cell.verdict.value)
    lines: list[Line] = [
        [
            (f"{mark} {cell.verdict.value}", f"bold {colour}"),
            (f"  {one_line(cell.id)}", "bold"),
            (f"  /{cell.hash}{'  flaky' if cell.flaky else ''}", "dim"),
        ]
    ]
    if cell.reason or not (cell.findings or cell.verdict.good):
        lines.append([(f"  {cell.why}", "")])
    if cell.news_text:
        lines.append([("  status ", "dim"), (cell.news_text, "")])
    for attempt in cell.attempts:
        lines += _attempt(attempt, alone=len(cell.attempts) == 1)
    if details.used:
        lines.append([("  used   ", "dim"), (", ".join(details.used), "")])
    for finding in cell.findings:
        lines += finding_lines(finding, cell.title(finding), details.step_seconds(finding.step), columns)
    lines += _metrics(cell)
    lines += [[("  file   ", "dim"), (f"{details.base}/{one_line(name)}", "")] for name in details.kept[:_MOST_FILES]]
    lines += more_lines(len(details.kept) - _MOST_FILES, "file")
    lines += _logs(details, columns)
    return [*lines, [("  rerun  ", "dim"), (cell.rerun, "cyan")]]


def _attempt(attempt: AttemptResult, alone: bool) -> list[Line]:
    mark, colour = glyph(attempt.verdict.value)
    line: Line = [(f"  attempt {attempt.number}  ", "dim"), (f"{mark} {attempt.verdict.value}", colour)]
    line.append((f"  {one_line(str(attempt.place))}  {duration_text(attempt.seconds)}", ""))
    lines = [line]
    if attempt.stages:
        first_s = attempt.stages[0].wall_s
        times = (f"{one.stage.value} +{duration_text(max(0.0, one.wall_s - first_s))}" for one in attempt.stages)
        lines.append([(f"    {', '.join(times)}", "dim")])
    if (why := attempt_why(attempt)) and not alone:  # otherwise the cell shows it
        lines.append([(f"    {why}", "")])
    return lines


def finding_lines(finding: Finding, title: str, took_s: float | None, columns: int) -> list[Line]:
    mark, colour = glyph(finding.verdict.value)
    line: Line = [(f"  {mark} ", colour), (title, "bold")]
    line += [(f"  {duration_text(took_s)}", "dim")] if took_s is not None else []
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


def _metrics(cell: CellView) -> list[Line]:
    judged = [metric for metric in cell.metrics if metric.better]
    name = max([width(one_line(metric.name)) for metric in judged], default=0)
    lines: list[Line] = [
        [("  metric ", "dim"), (f"{pad(one_line(metric.name), name)}  {value_text(metric.value, metric.unit)}", "")]
        for metric in judged
    ]
    if others := len(cell.metrics) - len(judged):
        lines.append([(f"  {count(others, 'unchecked metric')}; use --json to list them", "dim")])
    return lines


def _logs(details: CellDetails, columns: int) -> list[Line]:
    lines: list[Line] = [[("  log    ", "dim"), (log, "")] for log in details.logs]
    tails = details.log_tails()
    for part, text in tails.items():
        tail = strip_controls(text).rstrip().split("\n")
        cut = tail[-MOST_LOG_LINES // len(tails) :]
        some = f"… the last {count(len(cut), 'line')}" if len(cut) < len(tail) else ""
        head = f"== {part} {some}".rstrip() if part else some
        lines += _quoted([*([head] if head else []), *cut], columns) if tail != [""] else []
    return lines
