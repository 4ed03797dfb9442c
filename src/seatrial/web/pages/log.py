"""The log of an attempt, or of one part of it: the same page as beside the log, made when it is asked for."""

import re

from seatrial.report.html.log_page import render_log
from seatrial.report.html.templates import asset, content_policy
from seatrial.web.confine import NotThere, attempt_number, cell_hash, opened_below, run_folder
from seatrial.web.links import address
from seatrial.web.render import Page
from seatrial.web.site import Site

_PAGE = re.compile(r"cells/([0-9a-f]{8})/([1-9][0-9]{0,5})/(?:([a-z][a-z0-9-]{0,40})/)?log\.html")
_PARTS = ("server", "driver")


def log(site: Site, run: str, hash_: str, attempt: str) -> Page:
    """Of an attempt with several parts, that of the first that has one. Raises NotThere."""
    below = f"cells/{cell_hash(hash_)}/{attempt_number(attempt)}"
    top = "../" * 3
    for part in ("", *(f"{name}/" for name in _PARTS)):
        try:
            return _page(site, run, f"{below}/{part}log.txt", f"{top}r/{address(run)}", hash_)
        except NotThere as error:
            missing = error
    raise missing


def beside_log(site: Site, run: str, path: str) -> Page | None:
    """The page of a log where the report links to it; None for a path of something else. Raises NotThere."""
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
