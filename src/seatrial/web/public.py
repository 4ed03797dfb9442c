"""The dashboard as static files for any web server: all pages and files that are linked from the home page.

Each file is replaced atomically, so an update may overwrite a site that is being served.
"""

import os
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from seatrial.record import write_whole
from seatrial.web import pages
from seatrial.web.access import NotThere
from seatrial.web.catalogue import Site
from seatrial.web.files import Links, open_file
from seatrial.web.render import Page, error_page

ENDING = ".html"
_MOST_FILES = 50_000
MOST_FILE_BYTES = 20 << 20  # larger files of jobs are left out
_LINK = re.compile(r'href="([^"#?]+)')
_MODE = 0o644  # readable for the web server


@dataclass
class WrittenSite:
    pages: int = 0
    files: int = 0
    left_out: list[str] = field(default_factory=list)  # paths that were not written


def write_public(site: Site, folder: Path) -> WrittenSite:
    """Writes the site. Raises OSError and HistoryError."""
    done, wanted, written = {"index.html"}, ["index.html"], WrittenSite()
    while wanted:
        path = wanted.pop()
        if len(done) > _MOST_FILES:
            written.left_out.append(path)
            continue
        for found in _write(site, folder, path, written):
            if found not in done:
                done.add(found)
                wanted.append(found)
    return written


def _write(site: Site, folder: Path, path: str, written: WrittenSite) -> list[str]:
    """Writes one file and returns the paths that it links to."""
    parts = path.split("/")
    if parts[0] == "r" and len(parts) > 3 and parts[2] == "file":
        return _write_file(site, folder, path, parts[1], "/".join(parts[3:]), written)
    try:
        page = (
            pages.home(site) if path == "index.html" else _maker(parts)(site, *parts[1:-1], parts[-1][: -len(ENDING)])
        )
    except NotThere as error:
        page = error_page(404, str(error), Links(len(parts) - 1, ENDING))
    return _keep(folder, path, page, written)


def _maker(parts: list[str]) -> Callable[..., Page]:
    """The page at a path with these parts. Raises NotThere."""
    for route, make in pages.ROUTES.items():
        _, first, *others = route.split("/")
        if parts[0] == first and len(parts) == 1 + len(others) and parts[-1].endswith(ENDING):
            return make
    raise NotThere("Page not found.")


def _write_file(site: Site, folder: Path, path: str, run: str, below: str, written: WrittenSite) -> list[str]:
    """Writes a file of an attempt. Pages link only to files that browsers do not run."""
    try:
        log = pages.beside_log(site, run, below)
        if log is not None:
            return _keep(folder, path, log, written)
        file = open_file(site.runs, run, below)
    except NotThere:
        written.left_out.append(path)
        return []
    with file:
        if os.fstat(file.fileno()).st_size > MOST_FILE_BYTES:
            written.left_out.append(path)
        else:
            write_whole(folder / path, file.read(MOST_FILE_BYTES), sync=False, mode=_MODE)
            written.files += 1
    return []


def _keep(folder: Path, path: str, page: Page, written: WrittenSite) -> list[str]:
    write_whole(folder / path, page.html.encode("utf-8", "replace"), sync=False, mode=_MODE)
    os.chmod(folder / path, _MODE)
    written.pages += 1
    found = []  # linked paths within the site
    for link in dict.fromkeys(_LINK.findall(page.html + page.packed)):
        to = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(link)))
        if not link.startswith(("/", "http:", "https:")) and not to.startswith("../"):
            found.append(to)
    return found
