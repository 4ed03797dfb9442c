"""A cell through time: what it came to in each run and why, and its figures."""

import shlex
from pathlib import Path

from seatrial.job import VERSION, RunResults, Verdict
from seatrial.record.history import PastCell, Series
from seatrial.record.history.data import IMPORTED
from seatrial.report.html.figures import FigureLine, run_figures
from seatrial.report.trend.series import RunSeries, with_bound, with_changes
from seatrial.web.confine import NotThere
from seatrial.web.links import Links
from seatrial.web.pages.nights import night_of
from seatrial.web.pages.suite import known_suite
from seatrial.web.render import Page, page
from seatrial.web.site import Site

_MOST_RUNS = 120
_MOST_FIGURES = 12
_POINTS = 120  # of a figure


def cell(site: Site, suite: str, name: str, before: str = "") -> Page:
    suite = known_suite(site, suite)
    found = site.history.past_cells(suite, name, _MOST_RUNS + 1, before)
    if not found:
        older = f" in a run that is older than {before[:200]!r}" if before else ""
        raise NotThere(f"The history has no cell {name[:200]!r} in the suite {suite!r}{older}.")
    past = found[-_MOST_RUNS:]
    newest = past[-1]
    names = [one for one in site.history.names(newest.trial) if one.benchmark == newest.benchmark]
    run = site.history.run(newest.run)
    judged = [one for one in names if one.better]
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
        figures=_lines(site, judged[:_MOST_FIGURES]),
        more=len(names) - len(judged[:_MOST_FIGURES]),
        rerun=_rerun(run.suite_path if run else "", newest) if suite != IMPORTED else "",
        there=_folders(site.runs, past),
        night_of=night_of,
    )


def _lines(site: Site, names: list[Series]) -> list[FigureLine]:
    views = [with_bound(with_changes(one)) for one in site.history.filled(names, _POINTS)]
    nothing = RunResults(VERSION, "", "", Verdict.PASSED, [])
    return run_figures(nothing, RunSeries("", views, [])).lines


def _folders(runs: Path, past: list[PastCell]) -> set[str]:
    """Runs whose folder is still there."""
    return {one.run for one in past if (runs / one.run).is_dir()}


def _rerun(suite_path: str, newest: PastCell) -> str:
    return f"seatrial run {shlex.quote(suite_path)} --select /{newest.hash}" if suite_path else ""
