"""The home page: runs in progress, suites with their recent runs, and finished runs."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from seatrial.job import Verdict, worst_cell
from seatrial.record.history import IMPORTED, HistoryError, SuiteRun
from seatrial.report.view.live import RunLine
from seatrial.report.view.words import clock_text
from seatrial.web.access import NotThere
from seatrial.web.catalogue import Site
from seatrial.web.files import Links
from seatrial.web.render import Page, page, part

# Imported runs: all rows of one night are shown as one run.
#
# Other tools had one run per benchmark, so each imported row is a run in the history. Users think in nights.


_NIGHT = re.compile(rf"{IMPORTED}-(\d{{4}}-\d\d-\d\d)")
MOST_IMPORTED = 5_000  # rows searched for a night


def night_of(at_s: float) -> str:
    """The name of an imported night."""
    return f"{IMPORTED}-{clock_text(at_s, '%Y-%m-%d')}"


def is_night(name: str) -> bool:
    return _NIGHT.fullmatch(name) is not None


def nights(runs: Iterable[SuiteRun]) -> list[SuiteRun]:
    """One run per night, with the worst verdict of its rows."""
    found: dict[str, list[SuiteRun]] = {}
    for run in runs:
        found.setdefault(night_of(run.at_s), []).append(run)
    return [
        msgspec.structs.replace(of[0], run=name, verdict=worst_cell([Verdict(one.verdict) for one in of]).value)
        for name, of in found.items()
    ]


_SHOWN = 40  # runs per suite


@dataclass(frozen=True)
class SuiteLine:
    suite: str
    runs: int
    recent: list[SuiteRun]
    imported: bool

    @property
    def last(self) -> SuiteRun:
        return self.recent[-1]


def home(site: Site, before: str = "") -> Page:
    """The home page; with `before`, only finished runs older than that one. Raises NotThere."""
    links = Links(0, site.ending)
    found, wrong = site.catalogue.list(before), ""
    if before:
        if not found.past:
            raise NotThere(f"No runs before {before[:200]!r}.")
        return page("older_runs.html.j2", links, before=before, past=list(map(RunLine, found.past)), found=found)
    suites: list[SuiteLine] = []
    try:
        for one in site.history.suites(_SHOWN):
            imported = one.suite == IMPORTED
            recent = nights(site.history.suite_runs(IMPORTED, MOST_IMPORTED)) if imported else one.recent
            suites.append(SuiteLine(one.suite, len(recent) if imported else one.runs, recent[-_SHOWN:], imported))
    except HistoryError as error:
        wrong = str(error)
    return page(
        "home.html.j2",
        links,
        wrong=wrong,
        now=list(map(RunLine, found.now)),
        past=list(map(RunLine, found.past)),
        found=found,
        suites=suites,
        most=_SHOWN,
        place=str(site.runs.name) if links.live else "",
    )


def home_parts(site: Site) -> dict[str, str]:
    """The live parts of the home page."""
    links, found = Links(0, site.ending), site.catalogue.list()
    now, past = list(map(RunLine, found.now)), list(map(RunLine, found.past))
    return {
        "now": part("home_parts.html.j2", "now_part", links, now),
        "past": part("home_parts.html.j2", "past_part", links, past, found),
    }
