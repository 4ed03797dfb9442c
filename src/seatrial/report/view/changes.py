"""What is new in a run, in words: of the run, of a cell, of a cause. The same in every form of report."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from seatrial.job import Cause, CauseNews, CellNews, CellResult, Change, Moment, RunResults, Verdict, causes_by_cell
from seatrial.job.units import count
from seatrial.record.history import PastResult, RunPast, benchmark_of, outcome_class
from seatrial.report.view.words import commit_text, date_text, one_line

# What is new in a run: each cell and each cause against the last time, or against one given run. Pure.


HISTORY = "history"  # what news are relative to, where that is not a run


def with_news(results: RunResults, past: RunPast, against: str = HISTORY) -> RunResults:
    """The results with what became of each cell and each cause since the runs of `past`."""
    moments = {one.run: one.moment for of in past.cells.values() for one in of}
    runs = sorted(moments.values(), key=lambda moment: (moment.at_s, moment.run))
    places = {moment.run: place for place, moment in enumerate(runs)}
    causes = {hash_: own[0].id for hash_, own in causes_by_cell(results).items()}
    cells = [
        msgspec.structs.replace(
            cell, news=_cell_news(cell, causes.get(cell.hash, ""), past, places) if _ran(cell) else None
        )
        for cell in results.cells
    ]
    compared = {cell.news.last.run for cell in cells if cell.news and cell.news.last}
    return msgspec.structs.replace(
        results,
        cells=cells,
        causes=[msgspec.structs.replace(cause, news=_cause_news(cause, past, compared)) for cause in results.causes],
        against=against,
        changes=dict(Counter(cell.news.change.value for cell in cells if cell.news)),
        past_runs=runs,
    )


def past_of_run(before: RunResults) -> RunPast:
    """One run as all that is known: what `--against` compares with. What it knew itself of since when stays known."""
    moment = Moment(before.run, before.started_s, before.commit)
    causes = causes_by_cell(before)
    past = RunPast({}, {}, {})
    for cell in filter(_ran, before.cells):
        name = benchmark_of(cell.id)
        own = tuple(cause.id for cause in causes.get(cell.hash, []))
        one = PastResult(before.run, before.started_s, cell.verdict.value, cell.flaky, own, before.commit)
        past.cells[name] = [past.cells[name][0].with_repeat(one) if name in past.cells else one]
        if not cell.verdict.good:
            since = (cell.news and cell.news.since) or moment  # of its first cause
            past.streaks.update({(name, cause): moment for cause in own[1:]})
            past.streaks.update({(name, cause): since for cause in (*own[:1], "")})
    for cause in before.causes:
        past.causes[cause.id] = (cause.news and cause.news.since) or moment, moment
    return past


def _ran(cell: CellResult) -> bool:
    return bool(cell.attempts) and cell.verdict is not Verdict.SKIPPED


def _cell_news(cell: CellResult, cause: str, past: RunPast, places: dict[str, int]) -> CellNews:
    name = benchmark_of(cell.id)
    earlier = past.cells.get(name, [])
    last = earlier[-1] if earlier else None
    change = change_of(last.verdict if last else "", cell.verdict)
    if change is Change.KNOWN and last and not last.has_cause(cause):
        change = Change.OTHER_CAUSE
    since = past.streaks.get((name, cause), past.streaks.get((name, "")))
    return CellNews(
        change=change,
        last=last.moment if last else None,
        before=last.verdict if last else "",
        since=since if change in (Change.KNOWN, Change.FIXED) else None,
        runs=len(earlier) + 1,
        flaky=sum(one.flaky for one in earlier) + cell.flaky,
        bad=sum(outcome_class(one.verdict) is not None for one in earlier) + (not cell.verdict.good),
        past=[(places[one.run], "flaky" if one.flaky else one.verdict) for one in earlier],
    )


def change_of(before: str, now: Verdict) -> Change:
    """What became of a cell that had this verdict the last time; none: it never ran."""
    if not before:
        return Change.FIRST
    was, is_ = outcome_class(before), outcome_class(now.value)
    if is_ is None:
        return Change.SAME if was is None else Change.FIXED
    if was == is_:
        return Change.KNOWN
    return {Verdict.SLOWER: Change.SLOWER, Verdict.FASTER: Change.FASTER}.get(now, Change.NEW)


def _cause_news(cause: Cause, past: RunPast, compared: set[str]) -> CauseNews | None:
    if not compared:  # a first run: everything in it is new
        return None
    known = past.causes.get(cause.id)
    if known is None:
        return CauseNews(Change.NEW)
    first, last = known
    return CauseNews(Change.KNOWN if last.run in compared else Change.BACK, first, last)


NAMED = 3  # cells of one change, in a sentence
_LOOKED_AT = 2  # runs of a cell, from which on it is worth saying how many were bad
# What is said first. What is as it was is counted, and named nowhere.
_NEWLY_BAD = (Change.NEW, Change.SLOWER, Change.FASTER, Change.OTHER_CAUSE)
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


@dataclass(frozen=True)
class PastOutcome:
    """What a cell came to in one run."""

    verdict: str  # or `flaky`
    good: bool
    text: str


def past_outcomes(results: RunResults, cell: CellResult) -> list[PastOutcome]:
    """Its last runs, the oldest first, this one last; empty where there are no others."""
    if cell.news is None or not cell.news.past:
        return []
    known = [
        (outcome, results.past_runs[place]) for place, outcome in cell.news.past if 0 <= place < len(results.past_runs)
    ]
    now = Moment(results.run, results.started_s, results.commit)
    known.append(("flaky" if cell.flaky else cell.verdict.value, now))
    good = ("passed", "xfail", "skipped", "flaky")
    return [PastOutcome(outcome, outcome in good, f"{outcome}, {moment_text(when)}") for outcome, when in known]


def newly_bad(cell: CellResult) -> bool:
    """It is not good, and was the last time, or is not in the same way."""
    return cell.news is not None and cell.news.change in _NEWLY_BAD


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
    last = moment_text(news.last) if news.last else ""
    since = moment_text(news.since) if news.since else ""
    match news.change:
        case Change.NEW | Change.SLOWER | Change.FASTER:
            return f"{news.change.value}: {one_line(news.before)} {last}"
        case Change.OTHER_CAUSE:
            return f"{one_line(news.before)} with a different cause {last}"
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
