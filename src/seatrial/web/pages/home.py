"""The home page: runs in progress, what needs attention, suites with their recent runs, and finished runs. Search."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from seatrial.job import CELLS_WORST_FIRST, Cause, Verdict, worst_cell
from seatrial.job.units import count
from seatrial.record.history import IMPORTED, CauseRow, Found, HistoryError, RunCell, Series, SuiteRow, SuiteRun
from seatrial.report.view.live import LiveView, RunLine
from seatrial.report.view.series import with_changes
from seatrial.report.view.words import clock_text, grouped, one_line, percent_text
from seatrial.web.access import NotThere
from seatrial.web.catalogue import RunList, Site
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
    made = []
    for name, of in grouped(runs, lambda run: night_of(run.at_s)).items():
        worst = worst_cell(Verdict(one.verdict) for one in of)
        cells: Counter[str] = sum((Counter(one.counts) for one in of), Counter())
        made.append(msgspec.structs.replace(of[0], run=name, verdict=worst.value, counts_json=json.dumps(cells)))
    return made


_SHOWN = 40  # runs per suite
_MOST_TROUBLED = 20_000  # cells read to find flaky ones
_MOST_FOUND = 30  # of each kind in a search
_MOST_SIZED = 6  # series of alerts with the size of their change
_POINTS = 60  # of each
_FAILED = ("failed", "infra", "invalid")
RANGES = {"24h": 1, "7d": 7, "30d": 30, "all": 0}  # days


@dataclass(frozen=True)
class Filters:
    """The part of the home page that is shown, as in its URL."""

    range: str = "7d"  # of new causes and flaky cells
    suite: str = ""
    verdict: str = ""
    target: str = ""

    @property
    def since_s(self) -> float:
        return time.time() - days * 86_400 if (days := RANGES[self.range]) else 0.0

    def link(self, **changed: str) -> str:
        return f"?{urlencode({**asdict(self), **changed})}"

    def fits(self, run: SuiteRun) -> bool:
        return (
            self.suite in ("", run.suite)
            and self.verdict in ("", run.verdict)
            and (not self.target or self.target in run.targets)
        )


class Bar(NamedTuple):
    """A run as a stacked bar, in shares of its height. Every failure is visible."""

    run: SuiteRun
    cells: int
    good: int
    failed: float
    other: float  # timeout, xpass, slower
    verdict: str  # the worst


@dataclass(frozen=True)
class Attention:
    """Something to look at."""

    state: str  # for its symbol
    kind: str
    text: str
    about: str
    link: str
    at_s: float
    commit: str = ""


def _bar(run: SuiteRun) -> Bar:
    counts = run.counts
    cells = sum(counts.values()) - counts.get("flaky", 0)
    bad = {word: number for word, number in counts.items() if word != "flaky" and not Verdict(word).good}
    if not cells:  # of an older Seatrial
        return Bar(run, 0, 0, float(not Verdict(run.verdict).good), 0.0, run.verdict)
    failed = sum(bad.get(word, 0) for word in _FAILED)
    worst = next((word for word in (*_FAILED, *bad) if bad.get(word)), run.verdict)
    return Bar(run, cells, cells - sum(bad.values()), failed / cells, (sum(bad.values()) - failed) / cells, worst)


def home(site: Site, before: str = "", **chosen: str) -> Page:
    """The home page, with these filters; with `before`, only finished runs older than that one. Raises NotThere."""
    links = Links(0, site.ending)
    found, wrong = site.catalogue.list(before), ""
    if before:
        if not found.past:
            raise NotThere(f"No runs before {before[:200]!r}.")
        return page("older_runs.html.j2", links, before=before, past=list(map(RunLine, found.past)), found=found)
    shown = Filters(**{**chosen, "range": chosen["range"] if chosen.get("range") in RANGES else Filters.range})
    rows: list[SuiteRow] = []
    suites: list[tuple[SuiteRow, list[Bar], list[CauseRow]]] = []  # the causes are of its last run
    attention: list[Attention] = []
    try:
        rows = site.history.suites(_SHOWN)
        recent: dict[str, list[SuiteRun]] = {}
        for row in rows:
            runs = site.history.suite_runs(IMPORTED, MOST_IMPORTED) if row.suite == IMPORTED else row.recent
            runs = nights(runs)[-_SHOWN:] if row.suite == IMPORTED else runs
            if runs := [one for one in runs if shown.fits(one)]:
                recent[row.suite] = runs
        causes = site.history.causes_of_runs([runs[-1].run for runs in recent.values()])
        for row in rows:
            if row.suite in recent:
                own = [cause for cause in causes if cause.suite == row.suite]
                bars = [_bar(run) for run in recent[row.suite]]
                suites.append((row, bars, own))
        attention = _attention(site, links, recent, causes, shown)
    except HistoryError as error:
        wrong = str(error)
    return page(
        "home.html.j2",
        links,
        wrong=wrong,
        now=_now(site, found),
        past=list(map(RunLine, found.past)),
        found=found,
        suites=suites,
        imported=IMPORTED,
        attention=attention,
        shown=shown,
        ranges=list(RANGES),
        known_suites=sorted(row.suite for row in rows),
        targets=sorted({one for row in rows for run in row.recent for one in run.targets}),
        verdicts=[verdict.value for verdict in CELLS_WORST_FIRST],
        place=str(site.runs.name) if links.live else "",
    )


def _attention(
    site: Site, links: Links, recent: dict[str, list[SuiteRun]], causes: list[CauseRow], shown: Filters
) -> list[Attention]:
    """The causes of each suite's last run, unreviewed alerts and flaky cells, newest first. The time range decides
    which causes are new, and which runs count for flaky cells. A cause that the oldest run has is not new."""
    made = []
    for one in causes:
        if one.verdict not in ("slower", "faster"):  # those have alerts
            is_new = one.first_s >= shown.since_s and one.first_s > recent[one.suite][0].at_s
            kind = "New cause" if is_new else "Failing"
            link = links.cause(one.run, one.id)
            made.append(
                Attention(one.verdict or "failed", kind, one.text, _of(one), link, one.first_s, one.first_commit)
            )
    runs = {run.run: run for of in recent.values() for run in of}
    alarms = [alarm for alarm in site.history.alarms() if alarm.run in runs and not alarm.mark]
    alerts = grouped(alarms, lambda alarm: (runs[alarm.run].suite, alarm.verdict))
    named = {one.benchmark: one for one in site.history.names(judged=True)} if alerts else {}
    for (suite, verdict), some in alerts.items():
        benchmarks = list(dict.fromkeys(alarm.benchmark for alarm in some))
        series = [named[one] for one in benchmarks if one in named]
        to = links.metric_page(series[0].benchmark, series[0].metric) if series else links.suite(suite)
        about = f"{suite} · {', '.join(benchmarks[:3])}"
        kind, text = count(len(some), "unreviewed alert"), f"{count(len(benchmarks), 'benchmark')} {verdict}"
        if sizes := _sizes(site, series[:_MOST_SIZED]):
            text = f"{text}: {series[0].metric} {sizes}"
        made.append(Attention(verdict, kind, text, about, to, some[0].at_s, some[0].commit))
    recent = {suite: [run for run in of if run.at_s >= shown.since_s] for suite, of in recent.items()}
    runs = {run.run: run for of in recent.values() for run in of}
    bad_cells = site.history.troubled_cells([run for run in runs if not is_night(run)], _MOST_TROUBLED)
    troubled = grouped(bad_cells, lambda cell: (runs[cell.run].suite, cell.id))
    flaky: dict[str, list[tuple[int, float, RunCell]]] = {}  # by suite: number of bad runs, time of the last, cell
    for (suite, _), cells in troubled.items():
        order = [run.run for run in recent[suite]]
        bad = {order.index(cell.run) for cell in cells}
        streaks = sum(place - 1 not in bad for place in bad)
        if streaks > 1 and not {len(order) - 1, len(order) - 2} <= bad:  # a lasting failure is not flaky
            flaky.setdefault(suite, []).append((len(bad), runs[order[max(bad)]].at_s, cells[-1]))
    for suite, found in flaky.items():
        number, at_s, cell = max(found, key=lambda one: one[:2])
        text = f"{one_line(cell.id)} in {number} of {count(len(recent[suite]), 'run')}"
        about = f"{suite} · and {count(len(found) - 1, 'more flaky cell')}" if len(found) > 1 else suite
        made.append(Attention("flaky", "Flaky", text, about, links.cell(suite, cell.hash), at_s))
    return sorted(made, key=lambda one: -one.at_s)


def _sizes(site: Site, names: list[Series]) -> str:
    """The last level changes of these series: `+6.7 % to +8.5 %`."""
    views = map(with_changes, site.history.filled(names, _POINTS))
    sizes = sorted((view.changes[-1].size for view in views if view.changes), key=abs)
    return " to ".join(dict.fromkeys(percent_text(size) for size in (sizes[:1] + sizes[-1:])))


def _of(cause: CauseRow) -> str:
    return " · ".join(filter(None, (cause.suite, count(cause.cells, "cell"), cause.place)))


def _now(site: Site, found: RunList) -> list[tuple[RunLine, LiveView | None, Cause | None]]:
    """The runs in progress with their state and largest cause."""
    made = []
    for run in found.now:
        live = site.catalogue.live(run.run)
        causes = live.causes(site.find_causes) if live else []
        made.append((RunLine(run), live, causes[0] if causes else None))
    return made


def home_parts(site: Site) -> dict[str, str]:
    """The live parts of the home page."""
    links, found = Links(0, site.ending), site.catalogue.list()
    return {
        "now": part("home_parts.html.j2", "now_part", links, _now(site, found)),
        "past": part("home_parts.html.j2", "past_part", links, list(map(RunLine, found.past)), found),
    }


def search(site: Site, q: str = "") -> Page:
    """Runs, cells, commits and causes by their text."""
    words = q.strip()
    found = site.history.search(words, _MOST_FOUND) if words else Found()
    now = [one for one in map(RunLine, site.catalogue.list().now) if words and words.lower() in one.run.lower()]
    return page("search.html.j2", Links(0, site.ending), q=words, found=found, now=now, most=_MOST_FOUND)
