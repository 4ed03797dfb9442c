"""One metric over its runs: bounds, level changes, alerts and commands to review them. Comparison of two runs."""

import shlex
import time
from collections.abc import Mapping

from seatrial.job import Cause, CellResult, RunResults, causes_by_cell
from seatrial.record.folder import ResultsError
from seatrial.record.history import IMPORTED, HistoryError, Point, Series, SuiteRun, benchmark_of
from seatrial.report.view import sentences
from seatrial.report.view.compare import RunPair
from seatrial.report.view.over_runs import before_and_since, metric_plot
from seatrial.report.view.series import POINTS_SHOWN, SeriesView, unjudged_alarms, with_bound, with_changes
from seatrial.report.view.words import confidence_text, metric_or_open, one_line, percent_text
from seatrial.web.access import NotThere, run_folder
from seatrial.web.catalogue import ProposedChange, Site
from seatrial.web.files import Links, slug
from seatrial.web.pages.home import night_of
from seatrial.web.pages.run import kept_results
from seatrial.web.render import Page, page

_ROWS = 40  # points in the table
_MOST_CHANGES = 9
_MOST_MARKS = 3  # alerts with commands
_MOST_REASON = 1_000  # characters
REVIEWS = {"regression": "Known regression", "accepted": "Accept the new level", "false-alarm": "False alarm"}
MOST_SERIES = 6  # with different conditions


class MetricView:
    def __init__(self, series: Series, links: Links) -> None:
        self.view = view = with_bound(with_changes(series))
        self.plot = metric_plot(view, lambda one: links.run(night_of(one.at_s) if _imported(one.run) else one.run))
        self.histogram = before_and_since(view)
        self.title = sentences.series_title(view)
        period = sentences.period_text(view.points[0].at_s, view.points[-1].at_s)
        self.text = f"{sentences.points_text(view.points)}, {period}"
        self.bound = sentences.series_bound_text(view)
        self.left_out = sentences.left_out_text(view)
        timed = sentences.one_day([view])
        self.changes = [sentences.change_text(one, view.unit, timed) for one in view.changes[-_MOST_CHANGES:]]
        self.points = view.points[::-1][:_ROWS]  # newest first
        self.conditions = series.conditions


def _imported(run: str) -> bool:
    return run.startswith(f"{IMPORTED}-")


def metric_page(site: Site, benchmark: str, metric: str) -> Page:
    found = _series(site, benchmark, metric)
    found.sort(key=lambda one: -one.points[-1].at_s)
    links = Links(2, site.ending)
    views = [MetricView(one, links) for one in found[:MOST_SERIES]]
    first = views[0].view
    run = site.history.run(first.points[-1].run)
    alarms = {point.run: point for point in unjudged_alarms(first.points)}  # one per run, because marks apply to runs
    return page(
        "metric.html.j2",
        links,
        benchmark=first.benchmark,
        metric=first.metric,
        views=views,
        others=len(found) - len(views),
        alarms=len(alarms),
        marks=[mark_commands(first, point, site.options) for point in list(alarms.values())[-_MOST_MARKS:][::-1]],
        suite=run.suite if run else "",
        change=_recenter(site, first, run),
        review_token=site.review_token,
        reviews=REVIEWS,
        value_text=metric_or_open,
        is_imported=_imported,
        night=night_of,
    )


def _series(site: Site, benchmark: str, metric: str) -> list[Series]:
    """The series by its names or their slugs. Raises NotThere."""
    found = site.history.series(benchmark=benchmark, metric=metric, last=POINTS_SHOWN)
    if found:
        return found
    named = [one for one in site.history.names() if slug(one.benchmark) == benchmark and slug(one.metric) == metric]
    found = site.history.filled(named, POINTS_SHOWN)
    if not found:
        raise NotThere(f"Metric not found in the history: {metric[:200]!r} of benchmark {benchmark[:200]!r}.")
    return found


def mark_commands(view: SeriesView, point: Point, options: tuple[str, ...]) -> tuple[Point, list[str]]:
    """The commands to review an alert."""
    about = ["seatrial", "history", "mark", point.run, "--benchmark", view.benchmark, *options]
    return point, [shlex.join([*about, f"--{mark}", "--reason", "why"]) for mark in REVIEWS]


def review(site: Site, benchmark: str, metric: str, form: Mapping[str, str]) -> str:
    """Records the review of an alert. Returns what is wrong with the form. Raises NotThere and HistoryError."""
    name = _series(site, benchmark, metric)[0].benchmark
    run, label = form.get("run", ""), form.get("label", "")
    reason, by = (one_line(form.get(field, ""))[:_MOST_REASON] for field in ("reason", "by"))
    if not any((alarm.run, alarm.benchmark) == (run, name) for alarm in site.history.alarms()):
        return "This run has no alert of this benchmark."
    if label not in REVIEWS or not reason or not by:
        return "Choose what the alert was, and give a reason and your name."
    site.history.mark(run, name, label, reason, f"{by} (dashboard)", time.time())
    return ""


def _recenter(site: Site, view: SeriesView, run: SuiteRun | None) -> ProposedChange | None:
    """What accepting the new level would change; None if the level is within bounds or cannot be accepted."""
    if not view.better or not (view.regression or unjudged_alarms(view.points)):
        return None
    return site.recenter(run.suite_path, view.benchmark, view.metric) if run and run.suite != IMPORTED else None


# Comparison of two runs.


_POINTS = 40  # per metric, for its noise
_OLDER = 20  # older runs of the suite that can be chosen instead
_MOST_ROWS = 300
_MOST_METRICS = 120  # with noise from the history: the largest changes


def difference(site: Site, names: str) -> Page:
    before, dots, after = names.partition("..")
    if not dots or not before or not after or before == after:
        raise NotThere("Invalid comparison. Use /d/RUN..RUN with the older run first.")
    first, second = _results(site, before), _results(site, after)
    pair = RunPair(first, second)
    past: list[Series] = []
    older: list[SuiteRun] = []
    wrong = ""
    try:  # without the history, metrics of single runs have no noise
        older = site.history.suite_runs(second.suite, _OLDER, after)[::-1]
        past = site.history.filled(pair.changed(_MOST_METRICS), _POINTS)
    except HistoryError as error:
        wrong = f"Compared without the history: {error}"
    found = pair.compare(past)
    moved = [one for one in found.metrics if one.moved or one.maybe]
    return page(
        "difference.html.j2",
        Links(1, site.ending),
        before=first,
        after=second,
        older=[one for one in older if one.run != before],
        found=found,
        moved=moved[:_MOST_ROWS],
        same=len(found.metrics) - len(moved),
        wrong=wrong,
        most=_MOST_ROWS,
        value_text=metric_or_open,
        percent_text=percent_text,
        confidence_text=confidence_text,
        failing=_failing(first, second),
    )


def _failing(before: RunResults, after: RunResults) -> dict[str, list[tuple[Cause, list[CellResult]]]]:
    """The cells that failed in either run, by what became of them, then by cause, largest first. Cells that are fixed
    have their cause in the first run."""
    was = {benchmark_of(cell.id): cell for cell in before.cells}
    now = {benchmark_of(cell.id): cell for cell in after.cells}  # of repeats, the last
    of_before, of_after = causes_by_cell(before), causes_by_cell(after)
    groups: dict[str, dict[str, tuple[Cause, list[CellResult]]]] = {
        "Newly failing": {},
        "Still failing": {},
        "Fixed": {},
    }
    for name, cell in now.items():
        bad, was_bad = not cell.verdict.good, name in was and not was[name].verdict.good
        if bad or was_bad:
            kind, cell = ("Still failing" if was_bad else "Newly failing", cell) if bad else ("Fixed", was[name])
            known = (of_after if bad else of_before).get(cell.hash) or [Cause("", cell.verdict, cell.why, [])]
            groups[kind].setdefault(known[0].id or known[0].text, (known[0], []))[1].append(cell)
    return {kind: sorted(of.values(), key=lambda one: -len(one[1])) for kind, of in groups.items()}


def _results(site: Site, name: str) -> RunResults:
    folder = run_folder(site.runs, name)
    try:
        return kept_results(folder)
    except ResultsError as error:
        raise NotThere(f"Cannot compare {name}: {error}") from error
    except OSError:
        raise NotThere(f"{name} has no results yet. It is not finished.") from None
