"""What reports say of series, of what is new and of causes, in sentences. The same in every form of report."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from seatrial.job import Bound, BoundState, Cause, CellResult, Change, Moment, RunResults, pair_text
from seatrial.job.units import count
from seatrial.record.history import Point
from seatrial.report.view.changes import HISTORY
from seatrial.report.view.compare import Movement, RunComparison
from seatrial.report.view.series import ChangeGroup, LevelChange, Precision, SeriesView, bounds_outside
from seatrial.report.view.words import commit_text, confidence_text, date_text, one_line, percent_text

_K = TypeVar("_K")
_MOST_NAMES = 4
_MOST_RUNS = 3


def period_text(first_s: float, last_s: float) -> str:
    """From when to when: days; on a single day its times."""
    if date_text(first_s) != date_text(last_s):
        return f"{date_text(first_s)} to {date_text(last_s)}"
    if date_text(first_s, True) == date_text(last_s, True):
        return f"{date_text(first_s, True)} UTC"
    return f"{date_text(first_s, True)} to {date_text(last_s, True).rpartition(' ')[2]} UTC"


def one_day(views: Iterable[SeriesView]) -> bool:
    """All of their runs, which are in the order of time."""
    ends = [point.at_s for view in views if view.points for point in (view.points[0], view.points[-1])]
    return bool(ends) and date_text(min(ends)) == date_text(max(ends))


def values_and_runs(values: int, runs: int) -> str:
    """`8 runs`; where runs gave several values each, by repeats, both are given."""
    return count(runs, "run") if values == runs else f"{count(values, 'value')} of {count(runs, 'run')}"


def points_text(points: Sequence[Point]) -> str:
    return values_and_runs(len(points), len({point.run for point in points}))


def bound_text(bound: Bound, timed: bool = False) -> str:
    """`timed`: with the time of the day."""
    since = f" since {date_text(bound.since_s, timed)}" if bound.since_s else ""
    origin = f"{values_and_runs(bound.values or bound.runs, bound.runs)}{since}"
    if bound.width_runs is not None:
        width = f"of {count(bound.width_runs, 'earlier one')}" if bound.width_runs else "by hand"
        origin = f"centered on {origin}, width {width}"
    where = one_line(bound.source.rpartition("/")[2])  # a report is read elsewhere, too
    if bound.state is BoundState.DISABLED:
        return f"the bound from {where} is switched off: {one_line(bound.why)}"
    if bound.state is not BoundState.USABLE:
        return f"no bound yet from {where}: {one_line(bound.why) or bound.state.value} ({origin})"
    alarms = (
        f", one in {1 / bound.false_alarm:,.0f} good runs with normal noise would be out of it"
        if bound.false_alarm
        else ""
    )
    made = f"{origin}{alarms}; " if bound.runs else ""
    span = pair_text(bound.lower, bound.upper, one_line(bound.unit), " to ", "open")
    return f"bound {span} ({made}from {where})"


def series_bound_text(view: SeriesView, drawn: bool = True) -> str:
    """The bound of a series, or why there is none; `drawn`: and which of its sides the chart does not show."""
    if view.unbounded:
        return f"no bound: {one_line(view.unbounded)}"
    if view.bound is None:
        return ""
    text = bound_text(view.bound, one_day([view]))
    outside = bounds_outside(view) if drawn else []
    if len(outside) == 2:
        return f"{text}; both are outside the picture"
    return f"{text}; the {outside[0]} one is outside the picture" if outside else text


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
    """One sentence: where, how many, and which way."""
    where = f"At commit {commit_text(group.commit)}" if group.commit else f"At run {one_line(group.run)}"
    number = count(len({name for name, _ in group.moved}), "series", "series")
    parts = []
    for way in ("worse", "better", ""):
        moves = [(name, moved.size) for name, moved in group.moved if moved.way == way]
        if moves:
            sizes = sorted(abs(size) for _, size in moves)
            ends = dict.fromkeys(percent_text(size).removeprefix("+") for size in (sizes[0], sizes[-1]))
            names = _named(sorted({name for name, _ in moves}), _MOST_NAMES)
            parts.append(f"{len(moves)} {way or 'moved'} by {' to '.join(ends)} ({names})")
    return f"{where} ({date_text(group.at_s, timed)}) {number} moved: {'; '.join(parts)}"


def _named(names: Sequence[str], most: int) -> str:
    more = len(names) - most
    return ", ".join(map(one_line, names[:most])) + (f" and {more:,} more" if more > 0 else "")


def precision_text(found: Precision) -> str:
    if not found.alarms:
        return "no alarm was ever raised here"
    text = count(found.alarms, "alarm")
    accepted = f"{found.accepted} accepted" if found.accepted else ""
    if found.share is None and not found.unjudged:
        return f"{text}, {'all' if found.alarms > 1 else 'it was'} accepted as a new level"
    if found.share is None:
        none = f"{accepted}, the others not judged yet" if accepted else "none judged yet"
        return f"{text}, {none}: `seatrial history mark RUN --regression` or `--false-alarm` records your judgement"
    words = [f"{found.confirmed} confirmed", f"{found.false} false", accepted]
    words.append(f"{found.unjudged} not judged" if found.unjudged else "")
    text += f": {', '.join(word for word in words if word)}"
    return f"{text}; precision {found.share * 100:.0f} % of those judged"


def series_title(view: SeriesView) -> str:
    better = f", {view.better} is better" if view.better else ""
    unit = one_line(view.unit) or "no unit"
    return f"{one_line(view.metric)} ({unit}{better})"


def left_out_text(view: SeriesView) -> str:
    """How many metrics of which runs, by reason."""
    parts = []
    for reason, metrics in view.left_out.items():
        runs = [one_line(run) for run in dict.fromkeys(metrics)]
        named = ", ".join(runs) if len(runs) <= _MOST_RUNS else f"{runs[0]} … {runs[-1]}"
        parts.append(f"{len(metrics)} {reason} ({named})")
    return "; ".join(parts)


# What is new, and why.


NAMED = 3  # cells of one change, in a sentence
_LOOKED_AT = 2  # runs of a cell, from which on it is worth saying how many were bad
# What is named in a sentence; cells that did not change are only counted.
_VERBS = {
    Change.NEW: ("newly fails", "newly fail"),
    Change.SLOWER: ("is slower now", "are slower now"),
    Change.FASTER: ("is faster now", "are faster now"),
    Change.OTHER_CAUSE: ("has a different cause now", "have a different cause now"),
    Change.FIXED: ("is fixed", "are fixed"),
}


def since_text(results: RunResults) -> str:
    """What news are relative to."""
    return "since each cell ran last" if results.against == HISTORY else f"since run {one_line(results.against)}"


def news_sentences(results: RunResults) -> list[str]:
    """What changed, the worst first; one that says so where nothing did. Empty where nothing was compared, or there was
    nothing to compare with."""
    compared = [cell for cell in results.cells if cell.news and cell.news.change is not Change.FIRST]
    if not results.against or not compared:
        return []
    by_change: dict[Change, list[CellResult]] = {}
    for cell in results.cells:
        if cell.news:
            by_change.setdefault(cell.news.change, []).append(cell)
    lines = [
        f"{count(len(ids), 'cell')} {verbs[len(ids) > 1]}: {_named(ids, NAMED)}"
        for change, verbs in _VERBS.items()
        if (ids := [cell.id for cell in by_change.get(change, ())])
    ]
    if first := by_change.get(Change.FIRST):
        bad = [cell.id for cell in first if not cell.verdict.good]
        outcome = f"{len(bad)} of them did not pass: {_named(bad, NAMED)}" if bad else "all passed"
        lines.append(f"{count(len(first), 'cell')} ran for the first time; {outcome}")
    if known := by_change.get(Change.KNOWN):
        lines.append(f"{count(len(known), 'cell is', 'cells are')} as bad as the last time")
    if not any(change in by_change for change in (*_VERBS, Change.FIRST)):
        lines.insert(0, "no verdict is another one")
    return lines


_SAID = {  # in this order
    Change.NEW: "newly failing",
    Change.SLOWER: "slower now",
    Change.FASTER: "faster now",
    Change.OTHER_CAUSE: "with a different cause",
    Change.FIXED: "fixed",
    Change.KNOWN: "as bad as before",
    Change.FIRST: "for the first time",
}
_WORRYING = (Change.NEW, Change.SLOWER, Change.OTHER_CAUSE)


def news_counts(results: RunResults) -> list[tuple[str, bool]]:
    """How many cells changed in which way, and whether that is bad news; empty where there are no sentences."""
    if not news_sentences(results):
        return []
    changes = results.changes
    parts = [(f"{changes[one]} {said}", one in _WORRYING) for one, said in _SAID.items() if changes.get(one)]
    return parts or [("no verdict is another one", False)]


def cell_news_text(cell: CellResult) -> str:
    """`new: passed in the run before (…)`, `known since …; did not pass in 5 of its last 20 runs`; empty where there is
    nothing to say."""
    news = cell.news
    if news is None:
        return ""
    last = moment_text(news.last) if news.last else ""
    since = moment_text(news.since) if news.since else ""
    said = ""
    match news.change:
        case Change.NEW | Change.SLOWER | Change.FASTER:
            said = f"{news.change.value}: {one_line(news.before)} {last}"
        case Change.OTHER_CAUSE:
            said = f"{one_line(news.before)} with a different cause {last}"
        case Change.KNOWN:
            said = f"known since {since}" if since else "known"
        case Change.FIXED:
            said = f"fixed: was {one_line(news.before)} since {since}" if since else "fixed"
        case Change.FIRST if not cell.verdict.good:
            said = "its first run"
    parts = [said] if said else []
    if news.runs > _LOOKED_AT and news.bad:
        parts.append(f"did not pass in {news.bad} of its last {news.runs} runs")
    if news.flaky:
        parts.append(f"flaky in {news.flaky} of its last {count(news.runs, 'run')}")
    return "; ".join(parts)


def cause_news_text(cause: Cause, short: bool = False) -> str:
    """`short`: without the run."""
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
    """`42 of 299 cells need attention; 4 causes explain 39 of them`; empty where all is well."""
    bad = sum(not cell.verdict.good for cell in results.cells)
    if not bad:
        return ""
    shared = [cause for cause in results.causes if len(cause.cells) > 1]
    head = f"{bad} of {count(len(results.cells), 'cell')} need{'s' if bad == 1 else ''} attention"
    if not shared:
        return head
    explained = {hash_ for cause in shared for hash_ in cause.cells}  # a cell may have several causes
    verb = "explains" if len(shared) == 1 else "explain"
    return f"{head}; {count(len(shared), 'cause')} {verb} {len(explained)} of them"


def cause_place(cause: Cause, results: RunResults) -> str:
    """Where a cause is, as exactly as it is known: `machine=x3: all 10 there, none elsewhere`; of a few cells
    `both cells of machine=x3`, which does not claim that the machine is the reason."""
    if len(cause.cells) == 1:
        known = (cell.id for cell in results.cells if cell.hash == cause.cells[0])
        return one_line(next(known, cause.cells[0]))
    place = ", ".join(f"{one_line(axis)}={one_line(value)}" for axis, value in (cause.place or cause.shared).items())
    if not place:
        all_of = len(cause.cells) == sum(bool(cell.attempts) for cell in results.cells)
        return "every cell" if all_of else "no clear pattern"
    if not cause.place:
        return f"{'both' if len(cause.cells) == 2 else f'all {len(cause.cells)}'} cells of {place}"
    there = f"all {cause.of} there" if cause.there == cause.of else f"{cause.there} of {cause.of} there"
    elsewhere = len(cause.cells) - cause.there
    return f"{place}: {there}, {elsewhere or 'none'} elsewhere"


# What is different between two runs.


_VERDICTS = {
    Change.NEW: "newly failing",
    Change.SLOWER: "newly slower",
    Change.FASTER: "newly faster",
    Change.FIXED: "fixed",
}


def comparison_sentence(found: RunComparison) -> str:
    """`2 of 9 metrics moved (1 worse, 1 better), first of all …; 1 verdict is another (1 newly failing).`"""
    if not found.cells and not found.metrics:
        return "The two runs have no cell in common."
    moved = [one for one in found.metrics if one.moved]
    if not found.metrics:
        metrics = "No judged metric is in both runs" if not found.fingerprints else "No metric can be compared"
    elif not moved:
        maybe = sum(one.maybe for one in found.metrics)
        metrics = f"None of {count(len(found.metrics), 'metric')} surely moved{f', {maybe} perhaps' if maybe else ''}"
    else:
        first = next((one for one in moved if one.way == "worse"), moved[0])
        size = percent_text(first.size) if first.size is not None else levels_text(first)
        ways = _counted({"worse": "worse", "better": "better"}, [one.way for one in moved])
        metrics = f"{len(moved)} of {count(len(found.metrics), 'metric')} moved{ways}, first of all "
        metrics += f"{one_line(first.metric)} of {one_line(first.benchmark)}: {size}"
    if not found.verdicts:
        return f"{metrics}; every verdict is the same."
    verdicts = count(len(found.verdicts), "verdict is another", "verdicts are others")
    return f"{metrics}; {verdicts}{_counted(_VERDICTS, [one.change for one in found.verdicts])}."


def _counted(words: Mapping[_K, str], found: Iterable[_K]) -> str:
    counts = Counter(found)
    parts = [f"{counts[key]} {word}" for key, word in words.items() if counts[key]]
    return f" ({', '.join(parts)})" if parts else ""


def levels_text(one: Movement) -> str:
    return pair_text(one.before, one.after, one_line(one.unit), none="open")
