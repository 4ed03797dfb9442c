"""Compares the cells and causes of a run with their previous runs, or with one given run. Pure."""

from collections import Counter

import msgspec

from seatrial.job import Cause, CauseNews, CellNews, CellResult, Change, Moment, RunResults, Verdict, causes_by_cell
from seatrial.record.history import PastResult, RunPast, benchmark_of, outcome_class

HISTORY = "history"  # `RunResults.against` if cells are compared with their previous runs
NEWLY_BAD = (Change.NEW, Change.SLOWER, Change.FASTER, Change.OTHER_CAUSE)


def with_news(results: RunResults, past: RunPast, against: str = HISTORY) -> RunResults:
    """The results with the change of each cell and cause since `past`."""
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
    """The past for `--against`: one run alone. The start dates that it recorded itself are kept."""
    moment = Moment(before.run, before.started_s, before.commit)
    causes = causes_by_cell(before)
    past = RunPast({}, {}, {})
    for cell in filter(_ran, before.cells):
        name = benchmark_of(cell.id)
        own = tuple(cause.id for cause in causes.get(cell.hash, []))
        one = PastResult(before.run, before.started_s, cell.verdict.value, cell.flaky, own, before.commit)
        past.cells[name] = [past.cells[name][0].with_repeat(one) if name in past.cells else one]
        if not cell.verdict.good:
            since = (cell.news and cell.news.since) or moment  # for its first cause
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
    """The change of a cell with this previous verdict; empty if it never ran."""
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
