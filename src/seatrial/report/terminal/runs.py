"""The runs of a folder for a terminal, a line each."""

import time
from collections.abc import Sequence

from seatrial.job import CELLS_WORST_FIRST
from seatrial.job.units import count
from seatrial.record import RunOverview, RunState
from seatrial.report.terminal.lines import Line, glyph
from seatrial.report.text import duration_text, one_line, pad, width


def runs_lines(runs: Sequence[RunOverview], there: int) -> list[Line]:
    name = max(width(one_line(run.run)) for run in runs)
    lines = [_run(run, name) for run in runs]
    if there > len(runs):
        lines.append([(f"… and {there - len(runs):,} older; --last {there} lists all", "dim")])
    return lines


def _run(run: RunOverview, name: int) -> Line:
    state = run.verdict if run.state is RunState.FINISHED else run.state.value
    mark, colour = glyph(state)
    began = _local_time(run.started_s)
    took = duration_text(run.seconds)
    return [
        (pad(f"{mark} {state}", 13), f"bold {colour}"),
        (f"{pad(one_line(run.run), name)}  ", ""),
        (f"{began}  {pad(took, 12)}", "dim"),
        *_cells(run),
    ]


def _cells(run: RunOverview) -> Line:
    if run.state is RunState.DAMAGED:
        return [(one_line(run.why), "")]
    if run.state is not RunState.FINISHED:
        who = f"process {run.owner.pid} on {one_line(run.owner.host)}" if run.owner else "attach finishes it"
        return [(f"{run.done}/{run.cells} done, {who}", "")]
    line: Line = [(count(run.cells, "cell"), "")]
    for verdict in (*(verdict.value for verdict in CELLS_WORST_FIRST), "flaky"):
        if number := run.counts.get(verdict, 0):
            line.append((f"  {glyph(verdict)[0]} {number}", glyph(verdict)[1]))
    return line


def _local_time(at_s: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))
    except (OverflowError, ValueError, OSError):  # of a clock that was absurdly wrong
        return "?"
