"""OpenMetrics text for the textfile collector of a node exporter: verdicts, metrics and timestamps.

Every family is a gauge, so that the older Prometheus format can be parsed, too."""

import math
from collections.abc import Iterator

from seatrial.job import Stage, Verdict
from seatrial.report.view.cell import CellView
from seatrial.report.view.run import RunView
from seatrial.report.view.words import one_line

_MOST_LABEL = 200  # characters of a value

_FAMILIES = {
    "seatrial_run_started_timestamp_seconds": "Start of the run.",
    "seatrial_run_duration_seconds": "Duration of the run.",
    "seatrial_run_good": "1 if no cell of the run needs attention, else 0.",
    "seatrial_run_cells": "Number of cells by verdict.",
    "seatrial_run_holes": "Number of excluded combinations.",
    "seatrial_run_changes": "Number of cells by change since their previous run.",
    "seatrial_cause_cells": "Number of cells with this cause.",
    "seatrial_cell_good": "1 if the cell needs no attention, else 0.",
    "seatrial_cell_verdict": "1 for the verdict of the cell.",
    "seatrial_cell_flaky": "1 if the cell passed on a retry, else 0.",
    "seatrial_cell_duration_seconds": "Duration of the last attempt.",
    "seatrial_cell_started_timestamp_seconds": "Start of the last attempt.",
    "seatrial_cell_bad_since_timestamp_seconds": "Start of the current streak of failures with the same cause.",
    "seatrial_figure": "A metric of the cell, in the unit of its label.",
}
_Sample = tuple[str, dict[str, str], float]  # family, labels, value


def render_openmetrics(run: RunView) -> str:
    by_family: dict[str, dict[str, float]] = {name: {} for name in _FAMILIES}
    for family, labels, value in _samples(run):
        if math.isfinite(value):
            text = ",".join(f'{name}="{_escaped(of)}"' for name, of in labels.items())
            by_family[family][text] = value  # one sample per label set; the last one counts
    lines: list[str] = []
    for family, samples in by_family.items():
        if samples:
            lines += [f"# HELP {family} {_FAMILIES[family]}", f"# TYPE {family} gauge"]
            lines += [f"{family}{{{text}}} {value!r}" for text, value in samples.items()]
    return "\n".join([*lines, "# EOF", ""])


def _samples(run: RunView) -> Iterator[_Sample]:
    suite = {"suite": run.suite}
    of_run = {**suite, "run": run.run, "commit": run.commit}
    yield "seatrial_run_started_timestamp_seconds", of_run, run.started_s
    yield "seatrial_run_duration_seconds", suite, run.seconds
    yield "seatrial_run_good", suite, float(run.exit_code == 0)
    for verdict in Verdict:
        yield "seatrial_run_cells", {**suite, "verdict": verdict.value}, float(run.counts.get(verdict, 0))
    yield "seatrial_run_holes", suite, float(len(run.excluded))
    for change, number in run.changes.items():
        yield "seatrial_run_changes", {**suite, "change": change}, float(number)
    for cause in run.causes:
        labels = {**suite, "cause": cause.id, "verdict": cause.verdict.value, "text": cause.text}
        yield "seatrial_cause_cells", labels, float(len(cause.hashes))
    for cell in run.cells:
        yield from _cell(cell, {**suite, "trial": cell.trial, "cell": cell.id, "hash": cell.hash})


def _cell(cell: CellView, labels: dict[str, str]) -> Iterator[_Sample]:
    yield "seatrial_cell_good", labels, float(cell.done)
    yield "seatrial_cell_verdict", {**labels, "verdict": cell.verdict.value}, 1.0
    yield "seatrial_cell_flaky", labels, float(cell.flaky)
    if cell.last:
        if cell.seconds is not None:
            yield "seatrial_cell_duration_seconds", labels, cell.seconds
        times = {one.stage: one.wall_s for one in cell.last.stages}
        if Stage.STARTED in times:
            yield "seatrial_cell_started_timestamp_seconds", labels, times[Stage.STARTED]
    if cell.news and cell.news.since and cell.bad:
        yield "seatrial_cell_bad_since_timestamp_seconds", labels, cell.news.since.at_s
    for metric in cell.metrics:
        yield "seatrial_figure", {**labels, "figure": metric.name, "unit": metric.unit}, metric.value


def _escaped(value: str) -> str:
    line = one_line(value)[:_MOST_LABEL]
    return line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
