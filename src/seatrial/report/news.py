"""What is new in a run, in words: of the run, of a cell, of a cause. The same in every form of report."""

from collections.abc import Iterable

from seatrial.job import Cause, CellNews, CellResult, Change, Moment, RunResults
from seatrial.job.units import count
from seatrial.report.text import one_line
from seatrial.report.trend.describe import commit_text, date_text
from seatrial.report.trend.since import HISTORY

NAMED = 3  # cells of one change, in a sentence
_LOOKED_AT = 2  # runs of a cell, from which on it is worth saying how many were bad
# What is said first. What is as it was is counted, and named nowhere.
_VERBS = {
    Change.NEW: ("newly fails", "newly fail"),
    Change.SLOWER: ("is slower now", "are slower now"),
    Change.FASTER: ("is faster now", "are faster now"),
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
        f"{count(len(cells), 'cell')} {verbs[len(cells) > 1]}: {_named(cells)}"
        for change, verbs in _VERBS.items()
        if (cells := by_change.get(change))
    ]
    if first := by_change.get(Change.FIRST):
        bad = [cell for cell in first if not cell.verdict.good]
        outcome = f"{len(bad)} of them did not pass: {_named(bad)}" if bad else "all passed"
        lines.append(f"{count(len(first), 'cell')} ran for the first time; {outcome}")
    if known := by_change.get(Change.KNOWN):
        lines.append(f"{count(len(known), 'cell is', 'cells are')} as bad as the last time")
    if not any(change in by_change for change in (*_VERBS, Change.FIRST)):
        lines.insert(0, "no verdict is another one")
    return lines


def newly_bad(cell: CellResult) -> bool:
    """It is not good, and was the last time, or is not in the same way."""
    return cell.news is not None and cell.news.change in (Change.NEW, Change.SLOWER, Change.FASTER)


def cell_news_text(cell: CellResult) -> str:
    """`new: passed in the run before (…)`, `known since …; did not pass in 5 of its last 20 runs`; empty where there is
    nothing to say."""
    news = cell.news
    if news is None:
        return ""
    return "; ".join(part for part in (_changed(news, cell.verdict.good), *_often(news)) if part)


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


def _changed(news: CellNews, good: bool) -> str:
    then = f"{one_line(news.before)} {moment_text(news.last)}" if news.last else ""
    since = moment_text(news.since) if news.since else ""
    match news.change:
        case Change.NEW | Change.SLOWER | Change.FASTER:
            return f"{news.change.value}: {then}"
        case Change.KNOWN:
            return f"known since {since}" if since else "known"
        case Change.FIXED:
            return f"fixed: was {one_line(news.before)} since {since}" if since else "fixed"
        case Change.FIRST:
            return "" if good else "its first run"
    return ""


def _often(news: CellNews) -> Iterable[str]:
    if news.runs > _LOOKED_AT and news.bad:
        yield f"did not pass in {news.bad} of its last {news.runs} runs"
    if news.flaky:
        yield f"flaky in {news.flaky} of its last {count(news.runs, 'run')}"


def _named(cells: list[CellResult]) -> str:
    more = len(cells) - NAMED
    return ", ".join(one_line(cell.id) for cell in cells[:NAMED]) + (f" and {more:,} more" if more > 0 else "")
