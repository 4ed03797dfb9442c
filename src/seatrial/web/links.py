"""The addresses of pages, the same where they are served and where they are files of any web server.

Links are relative, so that both can lie anywhere; only the ending differs. What is in a name that not every file system
and web server takes (`train[model=a/b]`) is replaced, with a digest so that two names never meet.
"""

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import quote

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")


def slug(name: str) -> str:
    """A name as it stands in an address."""
    if _PLAIN.fullmatch(name) and ".." not in name and not name.endswith("."):
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{_OTHER.sub('-', name).strip('-.')[:60].replace('..', '-') or 'x'}-{digest}"


def address(run: str) -> str:
    """The name of a run, which is the name of a folder."""
    return quote(run, safe="")


@dataclass(frozen=True)
class Links:
    """Of one page: how others are reached from it."""

    depth: int  # folders that the page is below the first one
    ending: str = ""  # of pages that are files: .html

    @property
    def top(self) -> str:
        return "../" * self.depth

    @property
    def live(self) -> bool:
        """Whether there is a server that answers questions."""
        return not self.ending

    @property
    def home(self) -> str:
        return f"{self.top}index{self.ending}" if self.ending else self.top or "./"

    def older(self, run: str) -> str:
        """The same page, of what is older than that run. Only a server can answer."""
        return f"?before={address(run)}"

    def asset(self, name: str) -> str:
        return f"{self.top}assets/{name}"

    def run(self, run: str) -> str:
        return f"{self.top}r/{address(run)}{self.ending}"

    def suite(self, suite: str) -> str:
        return f"{self.top}s/{slug(suite)}{self.ending}"

    def cell(self, suite: str, hash_: str) -> str:
        return f"{self.top}c/{slug(suite)}/{slug(hash_)}{self.ending}"

    def figure(self, benchmark: str, metric: str) -> str:
        return f"{self.top}f/{slug(benchmark)}/{slug(metric)}{self.ending}"

    def difference(self, before: str, after: str) -> str:
        return f"{self.top}d/{address(before)}..{address(after)}{self.ending}"

    def log(self, run: str, hash_: str, attempt: int) -> str:
        return f"{self.top}log/{address(run)}/{slug(hash_)}/{attempt}{self.ending}"
