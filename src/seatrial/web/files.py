"""Serves files of jobs, which are not trusted, and builds the links between pages.

HTML and SVG files of jobs are never displayed, because they could run scripts as part of this site. Text and bitmaps
are sent with their type, all other files as downloads, and all with a policy that forbids scripts.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import quote

from aiohttp import web

from seatrial.web.access import NotThere, check_attempt, opened_below, run_folder

CHUNK_BYTES = 1 << 18
_SANDBOX = "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'none'"
_TYPES = dict.fromkeys((".txt", ".log", ".json", ".jsonl", ".csv"), "text/plain; charset=utf-8") | {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
_HIDDEN = frozenset({"job.json"})  # the submitted job, with its environment variables


def open_file(runs: Path, run: str, path: str) -> BinaryIO:
    """Opens a file of an attempt: cells/HASH/NUMBER/… The caller closes it. Raises NotThere."""
    parts = path.split("/")
    if len(parts) < 4 or parts[0] != "cells":
        raise NotThere("Only logs and kept files of attempts are shown: cells/HASH/NUMBER/…")
    check_attempt(parts[1], parts[2])
    if parts[-1] in _HIDDEN and "files" not in parts:
        raise NotThere("job.json is not shown: it contains environment variables.")
    with opened_below(run_folder(runs, run).path, path) as found:
        return os.fdopen(os.dup(found), "rb")


async def send_file(request: web.Request, file: BinaryIO, name: str, headers: dict[str, str]) -> web.StreamResponse:
    """Sends as many bytes as the file has now, since it may grow."""
    with file:
        left = os.fstat(file.fileno()).st_size
        headers |= {"Content-Security-Policy": _SANDBOX, "Content-Length": str(left)}
        known = _TYPES.get(PurePosixPath(name).suffix.lower())
        headers["Content-Type"] = known or "application/octet-stream"
        if known is None:
            headers["Content-Disposition"] = "attachment"
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        while left > 0 and (data := file.read(min(CHUNK_BYTES, left))):
            await response.write(data)
            left -= len(data)
        return response


# URLs of pages, for the server and for static files.
#
# Links are relative, so that a site works at any path; only the file extension differs. Characters that some file
# systems or web servers do not allow in names (`train[model=a/b]`) are replaced, and a digest keeps names unique.


_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")


def slug(name: str) -> str:
    """A name as part of a URL."""
    if _PLAIN.fullmatch(name) and ".." not in name and not name.endswith("."):
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{_OTHER.sub('-', name).strip('-.')[:60].replace('..', '-') or 'x'}-{digest}"


def address(run: str) -> str:
    """The name of a run as part of a URL."""
    return quote(run, safe="")


@dataclass(frozen=True)
class Links:
    """The links from one page to others."""

    depth: int  # folders between the page and the top
    ending: str = ""  # extension of static pages: .html

    @property
    def top(self) -> str:
        return "../" * self.depth

    @property
    def live(self) -> bool:
        """Whether the page is served by the dashboard, not a static file."""
        return not self.ending

    @property
    def home(self) -> str:
        return f"{self.top}index{self.ending}" if self.ending else self.top or "./"

    def older(self, run: str) -> str:
        """The same page for runs older than this one. Needs a server."""
        return f"?before={address(run)}"

    def asset(self, name: str) -> str:
        return f"{self.top}assets/{name}"

    def run(self, run: str) -> str:
        return f"{self.top}r/{address(run)}{self.ending}"

    def search(self, words: str) -> str:
        """Empty for static pages."""
        return f"{self.top}search?q={address(words)}" if self.live else ""

    def cause(self, run: str, cause: str) -> str:
        return f"{self.run(run)}#cause/{cause}"

    def suite(self, suite: str) -> str:
        return f"{self.top}s/{slug(suite)}{self.ending}"

    def cell(self, suite: str, hash_: str) -> str:
        return f"{self.top}c/{slug(suite)}/{slug(hash_)}{self.ending}"

    def metric_page(self, benchmark: str, metric: str) -> str:
        return f"{self.top}f/{slug(benchmark)}/{slug(metric)}{self.ending}"

    def difference(self, before: str, after: str) -> str:
        return f"{self.top}d/{address(before)}..{address(after)}{self.ending}"

    def log(self, run: str, hash_: str, attempt: int) -> str:
        return f"{self.top}log/{address(run)}/{slug(hash_)}/{attempt}{self.ending}"
