"""What is new, as the overview and the inspector show it: a line for the run, a word for each cause and each cell, and
a strip of a cell's last runs."""

from dataclasses import dataclass

from seatrial.job import Cause, CellResult, Change, Moment, RunResults
from seatrial.report.view.changes import cause_news_text, moment_text, newly_bad, since_text
from seatrial.report.view.words import date_text

_STEP = 8  # width of a run in a strip
_SAID = {  # in this order
    Change.NEW: "newly failing",
    Change.SLOWER: "slower now",
    Change.FASTER: "faster now",
    Change.OTHER_CAUSE: "with another cause",
    Change.FIXED: "fixed",
    Change.KNOWN: "as bad as before",
    Change.FIRST: "for the first time",
}
_WORRYING = (Change.NEW, Change.SLOWER, Change.OTHER_CAUSE)


@dataclass(frozen=True)
class RunNews:
    parts: list[tuple[str, bool]]  # what changed, and whether it is bad news
    against: str


@dataclass(frozen=True)
class CauseNewsWord:
    text: str
    new: int  # of its cells, those that were good the last time
    title: str


@dataclass(frozen=True)
class StripMark:
    x: int
    verdict: str  # or `flaky`
    good: bool
    title: str


def run_news(results: RunResults) -> RunNews | None:
    """None where there was nothing to compare with."""
    compared = any(cell.news and cell.news.change is not Change.FIRST for cell in results.cells)
    if not results.against or not compared:
        return None
    parts = [
        (f"{results.changes[change]} {said}", change in _WORRYING)
        for change, said in _SAID.items()
        if results.changes.get(change)
    ]
    return RunNews(parts or [("no verdict is another one", False)], since_text(results))


def cause_news(cause: Cause, cells: dict[str, CellResult]) -> CauseNewsWord | None:
    new = sum(newly_bad(cells[one]) for one in cause.cells if one in cells)
    if cause.news is None:
        return CauseNewsWord(f"{new} new", new, "") if new else None
    if new:
        text = f"{new} new"
    elif cause.news.change is Change.BACK:
        text = "back"
    else:
        text = f"since {date_text(cause.news.since.at_s)}" if cause.news.since else cause.news.change.value
    return CauseNewsWord(text, new, cause_news_text(cause))


def cell_strip(results: RunResults, cell: CellResult) -> list[StripMark]:
    """Its last runs, the oldest first, this one last; empty where there are no others."""
    if cell.news is None or not cell.news.past:
        return []
    known = [
        (outcome, moment_text(results.past_runs[place]))
        for place, outcome in cell.news.past
        if 0 <= place < len(results.past_runs)
    ]
    now = Moment(results.run, results.started_s, results.commit)
    known.append(("flaky" if cell.flaky else cell.verdict.value, moment_text(now)))
    good = ("passed", "xfail", "skipped", "flaky")
    return [
        StripMark(place * _STEP, outcome, outcome in good, f"{outcome}, {when}")
        for place, (outcome, when) in enumerate(known)
    ]
