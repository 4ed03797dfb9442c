"""The sentences of reports about metrics, changes, causes and comparisons; the same in every format."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import structs

from seatrial.job import (
    Bound,
    BoundState,
    Cause,
    CellResult,
    Change,
    Finding,
    Moment,
    RunResults,
    Verdict,
    flatten_metrics,
    normalised,
    pair_text,
    value_text,
)
from seatrial.job.units import count
from seatrial.record.history import CellRow, Point, RunCell
from seatrial.report.view.changes import HISTORY
from seatrial.report.view.compare import Movement, RunComparison
from seatrial.report.view.plot import number_of
from seatrial.report.view.series import ChangeGroup, LevelChange, Precision, SeriesView, bounds_outside
from seatrial.report.view.words import commit_text, confidence_text, date_text, grouped, listed, one_line, percent_text

_K = TypeVar("_K")
_MOST_NAMES = 4
_MOST_RUNS = 3
NOT_JUDGED = frozenset({"skipped"})  # not counted in the share of passed runs


def period_text(first_s: float, last_s: float) -> str:
    """The first and the last date; within one day, the times."""
    if date_text(first_s) != date_text(last_s):
        return f"{date_text(first_s)} to {date_text(last_s)}"
    if date_text(first_s, True) == date_text(last_s, True):
        return f"{date_text(first_s, True)} UTC"
    return f"{date_text(first_s, True)} to {date_text(last_s, True).rpartition(' ')[2]} UTC"


def one_day(views: Iterable[SeriesView]) -> bool:
    """Whether all runs are of the same day."""
    ends = [point.at_s for view in views if view.points for point in (view.points[0], view.points[-1])]
    return bool(ends) and date_text(min(ends)) == date_text(max(ends))


def values_and_runs(values: int, runs: int) -> str:
    """`8 runs`, or `16 values of 8 runs` if runs have repeats."""
    return count(runs, "run") if values == runs else f"{count(values, 'value')} of {count(runs, 'run')}"


def points_text(points: Sequence[Point]) -> str:
    return values_and_runs(len(points), len({point.run for point in points}))


def bound_text(bound: Bound, timed: bool = False) -> str:
    """`timed` adds the time of day."""
    since = f" since {date_text(bound.since_s, timed)}" if bound.since_s else ""
    origin = f"{values_and_runs(bound.values or bound.runs, bound.runs)}{since}"
    if bound.width_runs is not None:
        width = f"from {count(bound.width_runs, 'earlier run')}" if bound.width_runs else "set by hand"
        origin = f"center from {origin}, width of the bounds {width}"
    where = one_line(bound.source.rpartition("/")[2])  # reports are also read on other machines
    if bound.state is BoundState.DISABLED:
        return f"bounds from {where} are disabled: {one_line(bound.why)}"
    if bound.state is not BoundState.USABLE:
        return f"no bounds yet from {where}: {one_line(bound.why) or bound.state.value} ({origin})"
    rate = f", {bound.false_alarm * 100:.3g} % false-alarm rate" if bound.false_alarm else ""
    made = f"{origin}{rate}; " if bound.runs else ""
    span = pair_text(bound.lower, bound.upper, one_line(bound.unit), " to ", "open")
    return f"bounds {span} ({made}from {where})"


def series_bound_text(view: SeriesView, drawn: bool = True) -> str:
    """The bounds of a series, or why there are none. `drawn` adds which of them are outside the chart."""
    if view.unbounded:
        return f"no bounds: {one_line(view.unbounded)}"
    if view.bound is None:
        return ""
    bound = structs.replace(view.bound, unit=view.bound.unit or view.unit)
    text = bound_text(bound, one_day([view]))
    outside = bounds_outside(view) if drawn else []
    if len(outside) == 2:
        return f"{text}; both are outside the chart"
    return f"{text}; the {outside[0]} bound is outside the chart" if outside else text


def change_text(moved: LevelChange, unit: str, timed: bool = False) -> str:
    parts = [
        date_text(moved.at_s, timed),
        pair_text(moved.before, moved.after, one_line(unit)),
        f"{percent_text(moved.size)}{f' {moved.way}' if moved.way else ''}",
        confidence_text(moved.confidence),
        f"run {one_line(moved.run)}",
        f"commit {commit_text(moved.commit)}" if moved.commit else "",
    ]
    return ", ".join(part for part in parts if part)


def change_group_text(group: ChangeGroup, timed: bool = False) -> str:
    """One sentence: at which commit or run, how many series, better or worse."""
    where = f"At commit {commit_text(group.commit)}" if group.commit else f"At run {one_line(group.run)}"
    number = count(len({name for name, _ in group.moved}), "series", "series")
    parts = []
    for way in ("worse", "better", ""):
        moves = [(name, moved.size) for name, moved in group.moved if moved.way == way]
        if moves:
            sizes = sorted(abs(size) for _, size in moves)
            ends = dict.fromkeys(percent_text(size).removeprefix("+") for size in (sizes[0], sizes[-1]))
            names = listed(sorted({name for name, _ in moves}), _MOST_NAMES)
            parts.append(f"{len(moves)} {way or 'changed'} by {' to '.join(ends)} ({names})")
    return f"{where} ({date_text(group.at_s, timed)}), {number} changed: {'; '.join(parts)}"


def precision_text(found: Precision) -> str:
    if not found.alarms:
        return "no alerts"
    text = count(found.alarms, "alert")
    accepted = f"{found.accepted} accepted" if found.accepted else ""
    if found.share is None and not found.unjudged:
        return f"{text}, {'all ' if found.alarms > 1 else ''}accepted as a new level"
    if found.share is None:
        none = f"{accepted}, the others not reviewed" if accepted else "none reviewed"
        return f"{text}, {none}; run `seatrial history mark RUN` with `--regression` or `--false-alarm`"
    words = [f"{found.confirmed} confirmed", count(found.false, "false alarm"), accepted]
    words.append(f"{found.unjudged} not reviewed" if found.unjudged else "")
    text += f": {', '.join(word for word in words if word)}"
    return f"{text}; precision {found.share * 100:.0f} % of those reviewed"


def open_texts(view: SeriesView) -> list[str]:
    """What needs attention: an open regression, and a shift of the last runs that is not the same."""
    texts = [f"open regression since run {one_line(view.regression)}"] if view.regression else []
    same = bool(texts) and f"since run {view.regression} " in view.shift
    return texts + ([one_line(view.shift)] if view.shift and not same else [])


def series_title(view: SeriesView) -> str:
    better = f", {view.better} is better" if view.better else ""
    unit = one_line(view.unit) or "no unit"
    return f"{one_line(view.metric)} ({unit}{better})"


def left_out_text(view: SeriesView) -> str:
    """The number of values and their runs, by reason."""
    parts = []
    for reason, metrics in view.left_out.items():
        runs = [one_line(run) for run in dict.fromkeys(metrics)]
        named = ", ".join(runs) if len(runs) <= _MOST_RUNS else f"{runs[0]} … {runs[-1]}"
        parts.append(f"{len(metrics)} × {reason} ({named})")
    return "; ".join(parts)


# Changes since earlier runs, and causes.


NAMED = 3  # cell ids per sentence
_LOOKED_AT = 2  # with more runs than this, a cell's failure rate is shown
# Changes with a sentence of their own; unchanged cells are only counted.
_VERBS = {
    Change.NEW: ("newly fails", "newly fail"),
    Change.SLOWER: ("is slower now", "are slower now"),
    Change.FASTER: ("is faster now", "are faster now"),
    Change.OTHER_CAUSE: ("now fails for a different reason", "now fail for a different reason"),
    Change.FIXED: ("is fixed", "are fixed"),
}


def share_text(rows: Sequence[CellRow | RunCell]) -> str:
    """The verdicts of a cell over runs: `25 of 30 passed, 5 failed`."""
    judged = [row for row in rows if row.verdict not in NOT_JUDGED]
    counted = Counter(row.verdict for row in judged)
    flaky = sum(row.flaky for row in judged)
    parts = [f"{counted.pop('passed', 0)} of {len(judged)} passed"]
    parts += [f"{number} {verdict}" for verdict, number in counted.most_common()]
    parts += [f"{flaky} flaky"] if flaky else []
    parts += [f"{len(rows) - len(judged)} not run"] if len(judged) < len(rows) else []
    return ", ".join(parts)


def since_text(results: RunResults) -> str:
    """What changes are relative to."""
    return "since each cell's previous run" if results.against == HISTORY else f"since run {one_line(results.against)}"


def news_sentences(results: RunResults) -> list[str]:
    """What changed, worst first; one sentence if nothing did. Empty if nothing was compared."""
    compared = [cell for cell in results.cells if cell.news and cell.news.change is not Change.FIRST]
    if not results.against or not compared:
        return []
    by_change = grouped(results.cells, lambda cell: cell.news and cell.news.change)
    lines = [
        f"{count(len(ids), 'cell')} {verbs[len(ids) > 1]}: {listed(ids, NAMED)}"
        for change, verbs in _VERBS.items()
        if (ids := [cell.id for cell in by_change.get(change, ())])
    ]
    if first := by_change.get(Change.FIRST):
        bad = [cell.id for cell in first if not cell.verdict.good]
        outcome = f"{len(bad)} did not pass: {listed(bad, NAMED)}" if bad else "all passed"
        lines.append(f"{count(len(first), 'cell')} ran for the first time; {outcome}")
    if known := by_change.get(Change.KNOWN):
        lines.append(f"{count(len(known), 'cell still needs', 'cells still need')} attention")
    if not any(change in by_change for change in (*_VERBS, Change.FIRST)):
        lines.insert(0, "no verdict changed")
    return lines


_COUNTED = {  # in this order
    Change.NEW: "newly failing",
    Change.SLOWER: "slower now",
    Change.FASTER: "faster now",
    Change.OTHER_CAUSE: "with a different cause",
    Change.FIXED: "fixed",
    Change.KNOWN: "already known",
    Change.FIRST: "run for the first time",
}
_WORRYING = (Change.NEW, Change.SLOWER, Change.OTHER_CAUSE)


def news_counts(results: RunResults) -> list[tuple[str, bool]]:
    """Number of cells per kind of change, and whether that is bad; empty if there are no sentences."""
    if not news_sentences(results):
        return []
    changes = results.changes
    parts = [(f"{changes[one]} {words}", one in _WORRYING) for one, words in _COUNTED.items() if changes.get(one)]
    return parts or [("No verdict changed", False)]


def cell_news_text(cell: CellResult) -> str:
    """`new: previously passed, …`, `known since …; did not pass in 5 of its last 20 runs`; empty if nothing changed."""
    news = cell.news
    if news is None:
        return ""
    last = moment_text(news.last) if news.last else ""
    since = moment_text(news.since) if news.since else ""
    text = ""
    match news.change:
        case Change.NEW | Change.SLOWER | Change.FASTER:
            text = f"{news.change.value}: previously {one_line(news.before)}, {last}"
        case Change.OTHER_CAUSE:
            text = f"previously {one_line(news.before)} with a different cause, {last}"
        case Change.KNOWN:
            text = f"known since {since}" if since else "known"
        case Change.FIXED:
            text = f"fixed: {one_line(news.before)} since {since}" if since else "fixed"
        case Change.FIRST if not cell.verdict.good:
            text = "first run"
    parts = [text] if text else []
    if news.runs > _LOOKED_AT and news.bad:
        parts.append(f"did not pass in {news.bad} of its last {news.runs} runs")
    if news.flaky:
        parts.append(f"flaky in {news.flaky} of its last {count(news.runs, 'run')}")
    return "; ".join(parts)


def cause_news_text(cause: Cause, short: bool = False) -> str:
    """`short` leaves out the run."""
    news = cause.news
    if news is None:
        return ""
    match news.change:
        case Change.NEW:
            return "new"
        case Change.BACK if news.last:
            return f"back, last seen {moment_text(news.last, short)}"
        case _ if news.since:
            return f"known since {moment_text(news.since, short)}"
    return news.change.value


def moment_text(moment: Moment, short: bool = False) -> str:
    """`12 Nov 2026 03:14 UTC, run nightly-…, commit 1a2b3c4d5e`."""
    commit = f", commit {commit_text(moment.commit)}" if moment.commit else ""
    run = "" if short else f", run {one_line(moment.run)}"
    return f"{date_text(moment.at_s, timed=True)} UTC{run}{commit}"


def causes_sentence(results: RunResults) -> str:
    """`42 of 299 cells need attention: 4 causes`, or `…: 4 causes explain 39`; empty if all cells are good."""
    bad = sum(not cell.verdict.good for cell in results.cells)
    if not bad:
        return ""
    shared = [cause for cause in results.causes if len(cause.cells) > 1]
    head = f"{bad} of {count(len(results.cells), 'cell')} need{'s' if bad == 1 else ''} attention"
    if not shared:
        return head
    explained = len({hash_ for cause in shared for hash_ in cause.cells})  # a cell may have several causes
    if explained >= bad:
        return f"{head}: {count(len(shared), 'cause')}"
    return f"{head}: {count(len(shared), 'cause explains', 'causes explain')} {explained}"


_DIFFER = {"drift": "drifted", "diverged": "diverged"}


def cause_text(cause: Cause, cells: Sequence[CellResult]) -> str:
    """The message of a cause; instead of a measured one, how much its cells are off: `step_time 95 ms, +48 %`, or
    `15 of 18 cases drifted, worst 0.019, tolerance 0.008`."""
    if cause.verdict in (Verdict.SLOWER, Verdict.FASTER):
        found = [_off(cell, finding) for cell in cells for finding in cell.findings if finding.check in cause.text]
        known = sorted((one for one in found if one), key=lambda one: abs(one[0]))
        if known:
            few = f"{percent_text(known[0][0])} to " if len(known) > 1 and known[0][0] != known[-1][0] else ""
            return f"{known[-1][1]}, {few}{percent_text(known[-1][0])}"
    worst: tuple[float, str] = 0.0, ""
    for cell in cells:
        bad = {one.step: one for one in cell.findings if one.verdict is cause.verdict and "tolerance" in one.data}
        same = normalised(cause.text) if bad else ""
        alike = [one for one in bad.values() if normalised(one.message) == same]
        sizes = [size for one in alike if (size := number_of(one.data.get("size"))) is not None]
        if len(sizes) > 1 and max(sizes) > worst[0]:
            item = alike[0].step.partition(" ")[0]
            every = len({one.step for one in cell.findings if one.step.startswith(f"{item} ")})
            text = f"{len(alike)} of {count(every, item)} {_DIFFER.get(alike[0].class_, 'differ')}"
            worst = max(sizes), f"{text}, worst {max(sizes):.3g}, tolerance {alike[0].data['tolerance']:.3g}"
    return worst[1] or cause.text


def _off(cell: CellResult, finding: Finding) -> tuple[float, str] | None:
    """The deviation from the center of the bounds, and the metric with its value."""
    value, center = (number_of(finding.data.get(name)) for name in ("value", "center"))
    name = finding.check.partition(" ")[2]
    metric = next((one for one in flatten_metrics(cell.metrics) if one.name == name), None)
    if value is None or not center or metric is None:
        return None
    return value / center - 1, f"{one_line(name)} {value_text(value, metric.unit)}"


def cause_place(cause: Cause, results: RunResults) -> str:
    """The axis values or host of a cause: `only machine=x3 (10 of 10 cells)`. For few cells `both cells of machine=x3`,
    which does not claim that the machine is the reason."""
    if len(cause.cells) == 1:
        known = (cell.id for cell in results.cells if cell.hash == cause.cells[0])
        return one_line(next(known, cause.cells[0]))
    where = ", ".join(f"{one_line(axis)}={one_line(value)}" for axis, value in (cause.place or cause.shared).items())
    if not where:
        all_of = len(cause.cells) == sum(bool(cell.attempts) for cell in results.cells)
        return "every cell" if all_of else "no clear pattern across axes"
    if not cause.place:
        return f"{'both' if len(cause.cells) == 2 else f'all {len(cause.cells)}'} cells of {where}"
    share = f"{where} ({cause.there} of {count(cause.of, 'cell')})"
    elsewhere = len(cause.cells) - cause.there
    return f"{share}, {elsewhere} elsewhere" if elsewhere else f"only {share}"


# Differences between two runs.


_VERDICTS = {
    Change.NEW: "newly failing",
    Change.SLOWER: "newly slower",
    Change.FASTER: "newly faster",
    Change.FIXED: "fixed",
}


def comparison_sentence(found: RunComparison) -> str:
    """`2 of 9 metrics changed (1 worse, 1 better), for example …; 1 verdict changed (1 newly failing).`"""
    if not found.cells and not found.metrics:
        return "The two runs have no cells in common."
    moved = [one for one in found.metrics if one.moved]
    if not found.metrics:
        metrics = "No metric can be compared" if found.fingerprints else "No checked metric is in both runs"
    elif not moved:
        maybe = sum(one.maybe for one in found.metrics)
        metrics = f"No significant change in {count(len(found.metrics), 'metric')}"
        metrics += f" ({maybe} possible)" if maybe else ""
    else:
        first = next((one for one in moved if one.way == "worse"), moved[0])
        size = percent_text(first.size) if first.size is not None else levels_text(first)
        ways = _counted({"worse": "worse", "better": "better"}, [one.way for one in moved])
        metrics = f"{len(moved)} of {count(len(found.metrics), 'metric')} changed{ways}, for example "
        metrics += f"{one_line(first.metric)} of {one_line(first.benchmark)}: {size}"
    if not found.verdicts:
        return f"{metrics}; no verdict changed."
    verdicts = count(len(found.verdicts), "verdict changed", "verdicts changed")
    return f"{metrics}; {verdicts}{_counted(_VERDICTS, [one.change for one in found.verdicts])}."


def _counted(words: Mapping[_K, str], found: Iterable[_K]) -> str:
    counts = Counter(found)
    parts = [f"{counts[key]} {word}" for key, word in words.items() if counts[key]]
    return f" ({', '.join(parts)})" if parts else ""


def levels_text(one: Movement) -> str:
    return pair_text(one.before, one.after, one_line(one.unit), none="open")
