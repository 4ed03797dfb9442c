"""One metric over its runs: bounds, level changes, alerts and commands to review them. Comparison of two runs."""

import shlex

from seatrial.job import RunResults
from seatrial.record.history import IMPORTED, HistoryError, Point, Series
from seatrial.record.results import ResultsError
from seatrial.report.view import sentences
from seatrial.report.view.compare import RunPair
from seatrial.report.view.over_runs import before_and_since, metric_plot
from seatrial.report.view.series import POINTS_SHOWN, SeriesView, unjudged_alarms, with_bound, with_changes
from seatrial.report.view.words import metric_or_open, percent_text
from seatrial.web.access import NotThere, run_folder
from seatrial.web.catalogue import ProposedChange, Site
from seatrial.web.files import Links, slug
from seatrial.web.pages.home import night_of
from seatrial.web.pages.run import kept_results
from seatrial.web.render import Page, page

_ROWS = 40  # points in the table
_MOST_CHANGES = 9
_MOST_MARKS = 3  # alerts with commands
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
        change=_recenter(site, first),
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
    return point, [shlex.join([*about, f"--{mark}", "--reason", "why"]) for mark in ("regression", "false-alarm")]


def _recenter(site: Site, view: SeriesView) -> ProposedChange | None:
    """What accepting the new level would change; None if the level is within bounds or cannot be accepted."""
    if not view.better or not (view.regression or unjudged_alarms(view.points)):
        return None
    run = site.history.run(view.points[-1].run)
    return site.recenter(run.suite_path, view.benchmark, view.metric) if run and run.suite != IMPORTED else None


# Comparison of two runs.


_POINTS = 40  # per metric, for its noise
_MOST_ROWS = 300
_MOST_METRICS = 120  # with noise from the history: the largest changes


def difference(site: Site, names: str) -> Page:
    before, dots, after = names.partition("..")
    if not dots or not before or not after or before == after:
        raise NotThere("Invalid comparison. Use /d/RUN..RUN with the older run first.")
    first, second = _results(site, before), _results(site, after)
    pair = RunPair(first, second)
    past: list[Series] = []
    wrong = ""
    try:  # without the history, metrics of single runs have no noise
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
        found=found,
        moved=moved[:_MOST_ROWS],
        same=len(found.metrics) - len(moved),
        wrong=wrong,
        most=_MOST_ROWS,
        value_text=metric_or_open,
        percent_text=percent_text,
        hashes={cell.benchmark or cell.id: cell.hash for cell in second.cells},
    )


def _results(site: Site, name: str) -> RunResults:
    folder = run_folder(site.runs, name)
    try:
        return kept_results(folder)
    except ResultsError as error:
        raise NotThere(f"Cannot compare {name}: {error}") from error
    except OSError:
        raise NotThere(f"{name} has no results yet. It is not finished.") from None
