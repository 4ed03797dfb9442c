"""Two runs beside each other: which cells came to something else, which figures moved, what else is not as it was."""

from seatrial.job import RunResults
from seatrial.record.history import HistoryError, Series
from seatrial.record.results import ResultsError
from seatrial.report.trend.compare import RunPair
from seatrial.report.trend.describe import figure_or_open, percent_text
from seatrial.web.confine import NotThere, run_folder
from seatrial.web.links import Links
from seatrial.web.pages.run import kept_results
from seatrial.web.render import Page, page
from seatrial.web.site import Site

_POINTS = 40  # of each figure that its noise is taken from
_MOST_ROWS = 300
_MOST_FIGURES = 120  # whose noise is looked up: those that changed most


def difference(site: Site, names: str) -> Page:
    before, dots, after = names.partition("..")
    if not dots or not before or not after or before == after:
        raise NotThere("Two runs are compared as /d/RUN..RUN, the older one first.")
    first, second = _results(site, before), _results(site, after)
    pair = RunPair(first, second)
    past, wrong = _past(site, pair.changed(_MOST_FIGURES))
    found = pair.compare(past)
    moved = [one for one in found.figures if one.moved or one.maybe]
    return page(
        "difference.html.j2",
        Links(1, site.ending),
        before=first,
        after=second,
        found=found,
        moved=moved[:_MOST_ROWS],
        same=len(found.figures) - len(moved),
        wrong=wrong,
        most=_MOST_ROWS,
        figure_text=figure_or_open,
        percent_text=percent_text,
        hashes={cell.benchmark or cell.id: cell.hash for cell in second.cells},
    )


def _results(site: Site, name: str) -> RunResults:
    folder = run_folder(site.runs, name)
    try:
        return kept_results(folder)
    except ResultsError as error:
        raise NotThere(f"{name} cannot be compared: {error}") from error
    except OSError:
        raise NotThere(f"{name} has no results yet: it is not finished.") from None


def _past(site: Site, changed: list[Series]) -> tuple[list[Series], str]:
    """Where the noise of figures is taken from; without it single runs cannot be told apart, but all else can."""
    try:
        return site.history.filled(changed, _POINTS), ""
    except HistoryError as error:
        return [], f"Compared without the history: {error}"
