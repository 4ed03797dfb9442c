"""The page of a run: its report, its live state, or the record in the history if its folder was deleted. Log pages."""

import itertools
import re
from functools import lru_cache
from pathlib import Path

from seatrial.job import RunResults
from seatrial.record import RunFolder, RunState, owner_of, run_overview
from seatrial.record.folder import ResultsError, read_results
from seatrial.record.history import IMPORTED, CellRow, HistoryError
from seatrial.report import ReportError
from seatrial.report.html.log_page import render_log
from seatrial.report.html.page import RunPage
from seatrial.report.html.templates import asset, content_policy
from seatrial.report.view.live import STATES_WORST_FIRST
from seatrial.report.view.run import RunView
from seatrial.web.access import NotThere, check_attempt, opened_below, run_folder
from seatrial.web.catalogue import Site
from seatrial.web.files import Links, address
from seatrial.web.follow import FollowedRun, read_once
from seatrial.web.pages.home import MOST_IMPORTED, is_night, night_of
from seatrial.web.render import Page, live_assets, page, part, web_templates

MOST_PAST = 2_000  # cells shown from the history


def run(site: Site, name: str) -> Page:
    if is_night(name):
        return _night(site, name)
    try:
        folder = run_folder(site.runs, name)
    except NotThere:
        return _past(site, name)
    wrong = ""
    try:
        if _is_over(folder):
            try:
                return report(site, folder)
            except (ResultsError, OSError) as error:
                wrong = f"Cannot show the results: {error}"
        return _live(site, folder, wrong)
    except FileNotFoundError:
        raise NotThere(f"{name} is not a run: its folder has no plan.json. {wrong}".rstrip()) from None
    except OSError as error:
        raise NotThere(f"Cannot read the folder of {name}: {error.strerror}.") from None


def _is_over(folder: RunFolder) -> bool:
    """It has results, and its owner, if any, has finished it."""
    if not folder.results.exists():
        return False
    owner = owner_of(folder.path)
    return owner is None or not owner.works_on(folder.path) or bool(read_once(folder).run.finished)


def report(site: Site, folder: RunFolder) -> Page:
    """The report. A static file includes all fragments. Raises ResultsError and OSError."""
    made = _run_page(folder, site.ending)
    links = Links(1, site.ending)
    pieces = None if links.live else list(made.pieces())
    values = made.values(pieces)
    html = web_templates().get_template("served_run.html.j2").render(**values, links=links)
    return Page(html, str(values["policy"]), packed="".join(piece for _, piece in pieces or ()))


def piece(site: Site, name: str, key: str) -> Page:
    """A fragment of the page of a run, such as a cell or a cause. Raises NotThere."""
    try:
        folder = run_folder(site.runs, name)
        made = _run_page(folder, site.ending) if _is_over(folder) else live_page(site, read_once(folder))
        return Page(made.fragment(key), "default-src 'none'")
    except ReportError:
        raise NotThere("Cell or cause not found in this run.") from None
    except (ResultsError, OSError) as error:
        raise NotThere(f"Cannot read the results: {error}") from None


def kept_results(folder: RunFolder) -> RunResults:
    """The results, cached until the file changes. Raises ResultsError and OSError."""
    return _run_page(folder).run.results


def _run_page(folder: RunFolder, ending: str = "") -> RunPage:
    found = folder.results.stat()
    return _known_page(folder.path, found.st_mtime_ns, found.st_size, ending)


@lru_cache(maxsize=8)
def _known_page(folder: Path, changed_ns: int, size: int, ending: str) -> RunPage:
    """Cached for the fragments that are requested next."""
    name = address(folder.name)
    return RunPage(RunView(read_results(folder), folder, f"{name}/file"), f"{name}/piece/", Links(1, ending).run)


def _live(site: Site, folder: RunFolder, wrong: str = "") -> Page:
    now, overview = read_once(folder), run_overview(folder)
    wrong = wrong or now.wrong or overview.why
    made, links = live_page(site, now), Links(1, site.ending)
    goes_on = links.live and overview.state is RunState.RUNNING and not wrong
    values = made.values(None if links.live else made.pieces())
    style, script = live_assets()
    values |= {"style": style, "script": script, "policy": content_policy(style, script, links.live), "first": None}
    values |= {"now": now, "state": overview.state.value, "owner": overview.owner, "goes_on": goes_on, "wrong": wrong}
    html = web_templates().get_template("live.html.j2").render(**values, links=links)
    return Page(html, str(values["policy"]))


def live_page(site: Site, now: FollowedRun) -> RunPage:
    """The report of a run in progress."""
    name, results = address(now.folder.run), now.run.results(now.folder.run, site.find_causes)
    return RunPage(RunView(results, now.folder.path, f"{name}/file", now.run.states), f"{name}/piece/")


def live_parts(site: Site, now: FollowedRun, after: int) -> dict[str, str]:
    """The parts of the page that changed after a line."""
    made = live_page(site, now)
    values = made.values(None)
    changed = {cell.hash for cell in now.run.cells.values() if cell.line > after}
    parts = {
        "head": part("live_parts.html.j2", "head_part", now, made.run),
        "why": part("overview.html.j2", "why", values["causes"], values["thumbnails"], True),
        "running": part("live_parts.html.j2", "running_part", now.run),
    }
    if any(cell.hash in changed for grid in made.grids if not grid.layout.columns for cell in grid.cells):
        parts["lists"] = part("grid.html.j2", "trial_lists", values["lists"])
    for grid in made.grids:
        for number, panel in enumerate(grid.panels(grid.layout)[2] if grid.layout.columns else ()):
            parts[f"p-{grid.number}-{number}"] = f"{panel.good}/{panel.cells}"
            for spot in filter(None, itertools.chain.from_iterable(panel.rows)):
                if any(cell.hash in changed for cell in spot.cells):
                    parts[spot.part] = part("grid.html.j2", "place", spot)
    return parts


def _past(site: Site, name: str) -> Page:
    """Raises NotThere."""
    try:
        found, cells = site.history.run(name), site.history.run_cells(name, MOST_PAST)
    except HistoryError:
        found, cells = None, []
    if found is None:
        raise NotThere(f"Run not found: {name[:200]!r}, neither in the runs folder nor in the history.")
    if found.suite == IMPORTED:
        return _night(site, night_of(found.at_s))
    return _from_history(site, found.suite, name, found.verdict, found.at_s, cells, imported=False)


def _night(site: Site, name: str) -> Page:
    """The page of an imported night. Raises NotThere."""
    rows = [one for one in site.history.suite_runs(IMPORTED, MOST_IMPORTED) if night_of(one.at_s) == name]
    if not rows:
        raise NotThere(f"No imported runs of {name.removeprefix(IMPORTED + '-')}.")
    cells = [cell for row in rows[:MOST_PAST] for cell in site.history.run_cells(row.run, MOST_PAST)]
    bad = [row.verdict for row in rows if row.verdict != "passed"]
    return _from_history(site, IMPORTED, name, bad[0] if bad else "passed", rows[0].at_s, cells, imported=True)


def _from_history(
    site: Site, suite: str, name: str, verdict: str, at_s: float, cells: list[CellRow], imported: bool
) -> Page:
    order = {word: place for place, word in enumerate(STATES_WORST_FIRST)}
    return page(
        "past.html.j2",
        Links(1, site.ending),
        suite=suite,
        run=name,
        verdict=verdict,
        at_s=at_s,
        cells=sorted(cells, key=lambda cell: (order.get(cell.verdict, 99), cell.id)),
        imported=imported,
    )


# Log pages, rendered on request.


_PAGE = re.compile(r"cells/([0-9a-f]{8})/([1-9][0-9]{0,5})/(?:([a-z][a-z0-9-]{0,40})/)?log\.html")


def log(site: Site, run: str, hash_: str, attempt: str) -> Page:
    """The log of an attempt; with several parts, of the first that has one. Raises NotThere."""
    check_attempt(hash_, attempt)
    for folder in ("", "server/", "driver/"):
        try:
            path = f"cells/{hash_}/{attempt}/{folder}log.txt"
            return _page(site, run, path, f"../../../r/{address(run)}", hash_)
        except NotThere as error:
            missing = error
    raise missing


def beside_log(site: Site, run: str, path: str) -> Page | None:
    """The log page at the path that reports link to; None for other paths. Raises NotThere."""
    found = _PAGE.fullmatch(path)
    if found is None:
        return None
    up = "../" * (path.count("/") + 2)
    return _page(site, run, f"{path.removesuffix('.html')}.txt", f"{up}{address(run)}", found[1])


def _page(site: Site, run: str, path: str, report: str, hash_: str) -> Page:
    attempt = path.split("/")[2]
    with opened_below(run_folder(site.runs, run).path, path) as file:
        plain = f"{report}/file/{path}"
        html = render_log(file, f"{run} /{hash_}", f"attempt {attempt}", plain, f"{report}{site.ending}#cell/{hash_}")
    style, script = asset("page.css") + asset("log.css"), asset("log.js")
    return Page(html, content_policy(style, script))
