"""The history for a terminal: charts, bounds, level changes, alerts and their reviews, cells and runs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from seatrial.job.units import count
from seatrial.record import RunOverview, RunState
from seatrial.record.history import Alarm, CellRow, SuiteRun, TrialRow
from seatrial.report.terminal.chart import sparkline, terminal_chart
from seatrial.report.terminal.lines import Line, glyph, more_lines, section
from seatrial.report.view import sentences
from seatrial.report.view.live import RunLine
from seatrial.report.view.series import SeriesView, alarm_precision, group_changes, unjudged_alarms
from seatrial.report.view.words import (
    SYMBOLS,
    clock_text,
    commit_text,
    date_text,
    fit,
    metric_or_open,
    one_line,
    pad,
    percent_text,
    shorten,
    width,
)

MOST_DRAWN = 8  # series with a chart; the others get one line each
LEAST_DRAWN = 5  # runs of a series with a chart
_MOST_CHANGES = 9  # of one series
_MOST_GROUPS = 10
_MOST_MARKS = 10
MOST_LISTED = 50
MOST_REASON = 300


def history_lines(
    views: Sequence[SeriesView], alarms: Sequence[Alarm], others: int, columns: int, ascii_only: bool
) -> list[Line]:
    """`others` is the number of metrics without a direction that are not in `views`."""
    lines: list[Line] = []
    drawn = [view for view in views if len(views) == 1 or _is_drawn(view)][:MOST_DRAWN]
    for view in drawn:
        lines += [*_one(view, columns, ascii_only), []]
    if listed := [view for view in views if view not in drawn]:
        lines += [*_list(listed, bool(drawn), columns, ascii_only), []]
    timed = sentences.one_day(views)
    together = [sentences.change_group_text(group, timed) for group in group_changes(views, least=2)]
    lines += section("changed together", [[[(f"  {text}", "")]] for text in together], _MOST_GROUPS, "older one")
    if others:
        hidden = count(others, "unchecked metric")
        lines.append([(f"{hidden} not shown; use --all for all of them, --metric NAME for one", "dim")])
    return [*lines, [(sentences.precision_text(alarm_precision(alarms)), "")]] if views else lines


def ranked(views: Sequence[SeriesView]) -> list[SeriesView]:
    """In the order given; if there are more than MOST_DRAWN, unreviewed alerts first, then the latest changes for the
    worse."""

    def interest(view: SeriesView) -> tuple[bool, bool, float, str]:
        last = view.changes[-1] if view.changes else None
        worse = last is not None and last.way == "worse"
        return not unjudged_alarms(view.points[-1:]), not worse, -(last.at_s if last else 0.0), view.name

    return sorted(views, key=interest) if len(views) > MOST_DRAWN else list(views)


def _is_drawn(view: SeriesView) -> bool:
    return len({point.run for point in view.points}) >= LEAST_DRAWN


def _one(view: SeriesView, columns: int, ascii_only: bool) -> list[Line]:
    points = view.points
    timed = sentences.one_day([view])
    hardware = f" · /{one_line(view.fingerprint)}" if view.fingerprint else ""
    period = sentences.period_text(points[0].at_s, points[-1].at_s)
    last = f"{metric_or_open(points[-1].value, view.unit)} last, "
    lines: list[Line] = [
        [(one_line(view.benchmark), "bold"), (f"  {sentences.series_title(view)}", "")],
        [(last, ""), (f"{sentences.points_text(points)}, {period}{hardware}", "dim")],
    ]
    if drawn := _is_drawn(view):
        chart, bar = terminal_chart(view, columns, ascii_only), "|" if ascii_only else "│"
        lines += [[(f"{label}{bar}", "dim"), (drawing, "cyan")] for label, drawing in chart.rows]
        lines.append([(chart.axis, "dim")])
        if chart.events:
            label = " " * (len(chart.rows[0][0]) + 1)
            lines.append([(label, ""), (chart.events, "yellow"), (f"  ({chart.legend})", "dim")])
    if bound := sentences.series_bound_text(view, drawn):
        lines.append([(f"  {bound}", "")])
    if view.left_out:
        lines.append([(f"  not used for the bounds: {sentences.left_out_text(view)}", "dim")])
    first = max(0, len(view.changes) - _MOST_CHANGES)
    lines += more_lines(first, "older change")
    for number, moved in enumerate(view.changes[first:], first + 1):
        style = {"worse": "yellow", "better": "green"}.get(moved.way, "")
        lines.append([(f"  {number}  ", "bold"), (sentences.change_text(moved, view.unit, timed), style)])
    lines += [[(f"  {text}", "yellow")] for text in sentences.open_texts(view)]
    return lines + _marks(view)


def _marks(view: SeriesView) -> list[Line]:
    """Marks, and the number of unreviewed alerts."""
    lines: list[Line] = []
    # Each attempt of a cell has a point; a mark is of the whole run.
    marked = [*{(point.run, point.mark, point.mark_reason): point for point in view.points if point.mark}.values()]
    lines += more_lines(len(marked) - _MOST_MARKS, "older mark")
    for point in marked[-_MOST_MARKS:]:
        reason = one_line(shorten(point.mark_reason, MOST_REASON))
        lines.append([(f"  {point.mark}  ", "bold"), (f"run {one_line(point.run)}: {reason}", "")])
    if waiting := unjudged_alarms(view.points):
        mark, colour = glyph(waiting[-1].verdict)
        runs = len({point.run for point in waiting})
        text = f"{count(runs, 'unreviewed alert')}, latest in run {one_line(waiting[-1].run)}"
        lines.append([(f"  {mark} ", colour), (text, "")])
    return lines


def _list(views: Sequence[SeriesView], more: bool, columns: int, ascii_only: bool) -> list[Line]:
    """One line each; texts about bounds once, with the number of series. `more`: some series are drawn above."""
    title = f"{len(views)} {'more ' * more}series"
    lines: list[Line] = [[(title, "bold"), ("  (--benchmark B or --metric M shows one in full)", "dim")]]
    most = max(20, columns // 2)
    # Where names would be cut to the same text, the benchmark is a heading.
    headed = len({fit(one_line(view.name), most) for view in views}) < len({view.name for view in views})
    names = [one_line(view.metric if headed else view.name) for view in views]
    name = min(max(map(len, names)), most)
    for index, view in enumerate(views[:MOST_LISTED]):
        if headed and (index == 0 or views[index - 1].benchmark != view.benchmark):
            lines.append([(f"  {one_line(view.benchmark)}", "bold")])
        values = [point.value for point in view.points]
        last = view.changes[-1] if view.changes else None
        text = "no change"
        if last:
            text = f"{percent_text(last.size)} {last.way} {date_text(last.at_s)} {commit_text(last.commit)}"
        spark = sparkline(values, 16, ascii_only) if _is_drawn(view) else ""
        shown = pad(metric_or_open(values[-1], view.unit), 12)
        line: Line = [(f"  {'  ' * headed}{pad(fit(names[index], name), name)}  ", "")]
        line += [(f"{spark}  " if spark else "", "cyan"), (f"{shown}  ", ""), (text, "dim")]
        lines.append(line)
    lines += more_lines(len(views) - MOST_LISTED, "series", "series")
    bounds = Counter(sentences.series_bound_text(view, drawn=False) for view in views)
    shared = [(text, number) for text, number in bounds.most_common(3) if text and (number > 1 or len(views) == 1)]
    return lines + [[(f"  {count(number, 'metric')}: {text}", "dim")] for text, number in shared]


def trials_lines(trials: Sequence[TrialRow], runs: Sequence[SuiteRun], alarms: Iterable[Alarm]) -> list[Line]:
    """The content of a history: runs, trials, alerts."""
    lines: list[Line] = []
    if runs:
        since = sentences.period_text(runs[0].at_s, runs[-1].at_s)
        lines.append([(f"{count(len(runs), 'run')}, {since}, latest {one_line(runs[-1].run)}", "")])
    width = max([len(one_line(trial.trial)) for trial in trials] + [5])
    for trial in trials:
        had = "no metrics"
        if trial.series:
            had = f"{count(trial.benchmarks, 'benchmark')} with {count(trial.series, 'metric')}"
        text = f"{count(trial.runs, 'run')}, {had}, last {date_text(trial.last_s)}"
        lines.append([(f"  {pad(one_line(trial.trial), width)}  ", "bold"), (text, "")])
    lines.append([(sentences.precision_text(alarm_precision(alarms)), "")])
    if trials:
        lines.append([(f"run `seatrial history {one_line(trials[0].trial)}` to see its cells and metrics", "dim")])
    return lines


def alarms_lines(alarms: Sequence[Alarm]) -> list[Line]:
    lines: list[Line] = [[(sentences.precision_text(alarm_precision(alarms)), "bold")]]
    lines += more_lines(len(alarms) - MOST_LISTED, "older alert")
    timed = len({date_text(alarm.at_s) for alarm in alarms}) == 1
    for alarm in alarms[-MOST_LISTED:]:
        mark, colour = glyph(alarm.verdict)
        run = f"run {one_line(alarm.run)}{f', commit {commit_text(alarm.commit)}' if alarm.commit else ''}"
        review = "not reviewed"
        if alarm.mark:
            reason = one_line(shorten(alarm.mark_reason, MOST_REASON))
            review = f"{alarm.mark} ({one_line(alarm.mark_by)}): {reason}"
        head = (f"{mark} {alarm.verdict}  {date_text(alarm.at_s, timed)}  ", colour)
        lines += [[head, (one_line(alarm.benchmark), "bold")], [(f"    {run}: {review}", "dim")]]
        if alarm.why:
            lines.append([(f"    {one_line(shorten(alarm.why, MOST_REASON))}", "dim")])
    return lines


# Verdicts of each cell of a trial over its runs.


RUNS_SHOWN = 30
_MOST_CELLS = 30  # with one line each
_MOST_QUIET = 8  # cells that always passed; more are only counted


def cell_history_lines(trial: str, rows: Sequence[CellRow], columns: int) -> list[Line]:
    """Cells with a failure or a retry, latest first. Many cells that always passed are only counted."""
    runs = list(dict.fromkeys(row.run for row in rows))
    cells: dict[str, dict[str, CellRow]] = {}
    for row in rows:
        cells.setdefault(row.id, {})[row.run] = row
    trouble = {id_: [run for run, row in of.items() if not row.good or row.flaky] for id_, of in cells.items()}
    quiet = [id_ for id_ in cells if not trouble[id_]]
    latest = {id_: max(map(runs.index, found)) for id_, found in trouble.items() if found}
    troubled = sorted(latest, key=lambda id_: (-latest[id_], id_))
    heading = f"  {count(len(cells), 'cell')} over {count(len(runs), 'run')}, newest on the right"
    lines: list[Line] = [[(one_line(trial), "bold"), (heading, "dim")]]
    folded = len(quiet) > _MOST_QUIET
    shown = [*troubled[:_MOST_CELLS], *([] if folded else sorted(quiet))]
    name = min(max(map(width, map(one_line, shown)), default=0), max(20, columns - len(runs) - 36))
    for text, group in groupby(shown, lambda id_: _last_failure(cells[id_])):
        ids = list(group)
        lines += [_cell(id_, cells[id_], runs, name, columns) for id_ in ids]
        who = f"these {len(ids)} " if len(ids) > 1 else ""
        lines += [[(f"      {fit(f'{who}{text}', columns - 6)}", "dim")]] if text else []
    lines += more_lines(len(troubled) - _MOST_CELLS, "cell with a failure", "cells with a failure")
    if folded:
        lines.append([(f"  {count(len(quiet), 'cell')} passed in every run", "green")])
    return lines


def _cell(id_: str, of: dict[str, CellRow], runs: list[str], name: int, columns: int) -> Line:
    line: Line = [(f"  {pad(fit(one_line(id_), name), name)}  ", "")]
    for run in runs:
        row = of.get(run)
        line.append(glyph("flaky" if row.flaky else row.verdict) if row else (" ", ""))
    used = sum(width(text) for text, _ in line)
    return [*line, (f"  {fit(sentences.share_text(list(of.values())), max(10, columns - used - 2))}", "")]


def _last_failure(of: dict[str, CellRow]) -> str:
    bad = [row for row in of.values() if not row.good]
    if not bad:
        return ""
    last = bad[-1]
    why = one_line(last.why) or SYMBOLS[last.verdict].meaning
    return f"last {last.verdict} {date_text(last.at_s, timed=True)}, run {one_line(last.run)}: {why}"


# The runs of a folder, one line each.


def runs_lines(runs: Sequence[RunOverview], there: int) -> list[Line]:
    name = max(width(one_line(run.run)) for run in runs)
    lines = [_run(run, name) for run in runs]
    if there > len(runs):
        lines.append([(f"… and {there - len(runs):,} older; use --last {there} to list all", "dim")])
    return lines


def _run(run: RunOverview, name: int) -> Line:
    shown = RunLine(run)
    mark, colour = glyph(shown.state)
    line: Line = [
        (pad(f"{mark} {shown.state}", 15), f"bold {colour}"),
        (f"{pad(one_line(run.run), name)}  ", ""),
        (f"{clock_text(run.started_s, '%Y-%m-%d %H:%M', '?', local=True)}  {pad(shown.took, 12)}", "dim"),
    ]
    if run.state is RunState.DAMAGED:
        return [*line, (one_line(run.why), "")]
    if run.state is not RunState.FINISHED:
        who = f"process {run.owner.pid} on {one_line(run.owner.host)}" if run.owner else ""
        how = who or f"resume with `seatrial attach {one_line(run.run)}`"
        return [*line, (f"{run.done}/{run.cells} done, {how}", "")]
    line.append((count(run.cells, "cell"), ""))
    for word, number in shown.counts:
        mark, colour = glyph(word)
        line.append((f"  {mark} {number}", colour))
    return line
