"""The pages of a suite, with its cells over recent runs, and of one cell."""

import re
import shlex
from dataclasses import dataclass
from functools import cache

from markupsafe import Markup, escape

from seatrial.job import Verdict
from seatrial.record import RunFolder
from seatrial.record.history import RunCell, SuiteRun
from seatrial.record.history.data import IMPORTED
from seatrial.report.html.metrics import MetricPanel
from seatrial.report.view.run import rerun_command
from seatrial.report.view.sentences import share_text
from seatrial.report.view.series import RunSeries, with_bound, with_changes
from seatrial.report.view.words import SYMBOLS, one_line
from seatrial.web.access import NotThere
from seatrial.web.catalogue import Site
from seatrial.web.files import Links, slug
from seatrial.web.pages.home import MOST_IMPORTED, night_of, nights
from seatrial.web.render import Page, page

_RUNS_SHOWN = 40
_MOST_CELLS = 16_000  # cells times runs that are read
_MOST_ROWS = 400


@dataclass(frozen=True)
class CellStrip:
    id: str
    trial: str
    values: str  # of its axes
    hash: str  # in its latest run
    strip: Markup
    share: str
    bad: bool  # in its latest run


def suite(site: Site, name: str, before: str = "") -> Page:
    name = known_suite(site, name)
    found = shown_runs(site, name, before)
    if before and not found:
        raise NotThere(f"Suite {name!r} has no runs before {before[:200]!r}.")
    rows, runs = strip_rows(site, name, found[-_RUNS_SHOWN:])
    troubled = [row for row in rows if row.share]
    shown = [*troubled, *(row for row in rows if not row.share)][:_MOST_ROWS]
    return page(
        "suite.html.j2",
        Links(1, site.ending),
        suite=name,
        imported=name == IMPORTED,
        runs=runs,
        rows=shown,
        cells=len(rows),
        troubled=len(troubled),
        bad=sum(row.bad for row in rows),
        left_out=len(rows) - len(shown),
        before=before,
        older=len(found) > len(runs),
    )


def known_suite(site: Site, name: str) -> str:
    """The suite with this name or slug. Raises NotThere."""
    known = [one.suite for one in site.history.suites(1)]
    for one in known:
        if name in (one, slug(one)):
            return one
    raise NotThere(f"Suite not found in the history: {name!r}. Known: {', '.join(sorted(known)[:20]) or 'none'}.")


def shown_runs(site: Site, name: str, before: str) -> list[SuiteRun]:
    """The runs to show, and one more if there are older ones."""
    if name != IMPORTED:
        return site.history.suite_runs(name, _RUNS_SHOWN + 1, before)
    found = nights(site.history.suite_runs(name, MOST_IMPORTED))
    return [one for one in found if not before or one.run < before][-_RUNS_SHOWN - 1 :]


def strip_rows(site: Site, name: str, runs: list[SuiteRun]) -> tuple[list[CellStrip], list[SuiteRun]]:
    """One row per cell, latest failures first, and the runs that were read."""
    column = {run.run: run.run for run in runs}
    if name == IMPORTED:
        column = {run.run: night_of(run.at_s) for run in site.history.suite_runs(name, MOST_IMPORTED)}
    cells: dict[str, dict[str, RunCell]] = {}
    for cell in site.history.cells_of_runs(list(column), _MOST_CELLS):
        cells.setdefault(cell.id, {}).setdefault(column[cell.run], cell)
    read = {run for of in cells.values() for run in of}
    shown = [run for run in runs if run.run in read]
    names = [run.run for run in shown]
    order = sorted(cells, key=lambda id_: (-_latest_trouble(cells[id_], names), id_))
    return [_row(id_, cells[id_], names) for id_ in order], shown


def _row(id_: str, of: dict[str, RunCell], runs: list[str]) -> CellStrip:
    newest = next((of[run] for run in reversed(runs) if run in of), next(iter(of.values())))
    strip = Markup("").join(_mark(of[run].verdict, of[run].flaky) if run in of else _mark("", False) for run in runs)
    rows, bad = [*of.values()], not Verdict(newest.verdict).good
    share = share_text(rows) if any(row.verdict != "passed" or row.flaky for row in rows) else ""
    return CellStrip(one_line(id_), *_short(id_), newest.hash, strip, share, bad)


def _short(id_: str) -> tuple[str, str]:
    """The trial and the axis values of `trial[axis=value,…]`."""
    trial, _, axes = one_line(id_).removesuffix("]").partition("[")
    return trial, re.sub(r"(^|,)[\w.-]+=", " · ", axes).removeprefix(" · ")


def _latest_trouble(of: dict[str, RunCell], runs: list[str]) -> int:
    troubled = (place for place, run in enumerate(runs) if run in of and (of[run].verdict != "passed" or of[run].flaky))
    return max(troubled, default=-1)


@cache
def _mark(verdict: str, flaky: bool) -> Markup:
    if not verdict:
        return Markup("<i></i>")
    word = "flaky" if flaky else verdict
    glyph = "·" if word == "passed" else SYMBOLS[word].glyph if word in SYMBOLS else "?"
    return Markup('<i class="v-{}">{}</i>').format(word, escape(glyph))


# The page of one cell: its runs and metrics.


_MOST_RUNS = 120
_MOST_METRICS = 12
_POINTS = 120  # per metric


def cell(site: Site, suite: str, name: str, before: str = "") -> Page:
    suite = known_suite(site, suite)
    found = site.history.past_cells(suite, name, _MOST_RUNS + 1, before)
    if not found:
        older = f" before run {before[:200]!r}" if before else ""
        raise NotThere(f"Cell not found in the history of suite {suite!r}{older}: {name[:200]!r}.")
    past = found[-_MOST_RUNS:]
    newest = past[-1]
    names = [one for one in site.history.names(newest.trial) if one.benchmark == newest.benchmark]
    run = site.history.run(newest.run)
    judged = [one for one in names if one.better]
    views = [with_bound(with_changes(one)) for one in site.history.filled(judged[:_MOST_METRICS], _POINTS)]
    rerun = ""
    if run and run.suite_path and suite != IMPORTED:
        kept = RunFolder(site.runs / newest.run).read_results()  # the history does not have its options
        rerun = f"seatrial run {shlex.quote(run.suite_path)} --select /{newest.hash}"
        rerun = rerun_command(kept, f"--select /{newest.hash}") if kept else rerun
    return page(
        "cell.html.j2",
        Links(2, site.ending),
        suite=suite,
        cell=newest,
        imported=suite == IMPORTED,
        past=past[::-1],
        before=before,
        older=len(found) > len(past),
        bad=sum(not Verdict(one.verdict).good for one in past),
        flaky=sum(one.flaky for one in past),
        metrics=MetricPanel(RunSeries("", views, [])).lines,
        more=len(names) - len(judged[:_MOST_METRICS]),
        rerun=rerun,
        there={one.run for one in past if (site.runs / one.run).is_dir()},  # runs with a folder
        night_of=night_of,
    )
