"""Finds files below some folders that match a pattern. Follows no link out of them, and is bounded."""

from __future__ import annotations

import os
import re
import stat
from typing import Iterator, List, NamedTuple

MOST_ENTRIES = 500_000  # files and folders that are searched
_MOST_DEPTH = 100
_PIECE = re.compile(r"\*\*/?|\[(!?)(\]?[^\]]*)\]|.", re.DOTALL)
_GLOBS = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class FoundFile(NamedTuple):
    """`relative` is the path below its root; `shown` is for display and also names the root if needed."""

    relative: str
    shown: str
    path: str
    file_stat: os.stat_result


def compiled(pattern: str) -> "re.Pattern[str]":
    """Compiles a glob: `*` and `?` stay in a folder, `**` does not, `[...]` is one of the characters. Raises ValueError
    if the pattern is invalid."""
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ValueError("invalid file pattern %s; use a relative path without `..`" % pattern)

    def piece(found: "re.Match[str]") -> str:
        negated, some = found.groups()
        if some is None:
            return _GLOBS.get(found.group()) or re.escape(found.group())
        return "(?!/)[%s%s]" % ("^" if negated else "", some.replace("\\", "\\\\").replace("[", "\\["))

    try:
        return re.compile(_PIECE.sub(piece, pattern) + r"\Z", re.DOTALL)
    except re.error as error:
        raise ValueError("invalid file pattern %s: %s" % (pattern, error)) from None


class Search:
    """Walks the folders once, for all patterns. `cut` is the reason if not everything was searched."""

    def __init__(self, roots: List[str], labels: List[str]) -> None:
        self.cut = ""
        self.files: List[FoundFile] = []
        self._looked = 0
        links: List[FoundFile] = []
        for number, root in enumerate(roots):
            for found in self._walk(os.path.realpath(root), labels[number]):
                (links if stat.S_ISLNK(found.file_stat.st_mode) else self.files).append(found)
        first = {found.path: found for found in reversed(self.files)}  # a root may be inside another
        self.files = sorted(first.values())
        self._links = list(self._inside(links, [os.path.realpath(root) for root in roots]))

    def matching(self, pattern: str) -> List[FoundFile]:
        """Returns the matching files, without links to files that match themselves."""
        wanted = compiled(pattern)

        def matches(found: FoundFile) -> bool:
            return wanted.match(found.relative) is not None or wanted.match(found.shown) is not None

        chosen = {found.path: found for found in self.files if matches(found)}
        for link in self._links:
            if matches(link):
                chosen.setdefault(link.path, link)
        return sorted(chosen.values(), key=lambda found: found.shown)

    def _walk(self, root: str, label: str) -> Iterator[FoundFile]:
        waiting = [(root, "", 0)]
        while waiting:
            folder, prefix, depth = waiting.pop()
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError:
                continue  # not readable, or gone
            for entry in entries:
                self._looked += 1
                if self._looked > MOST_ENTRIES:
                    self.cut = "more than %d files and folders; the rest was not searched" % MOST_ENTRIES
                    return
                try:
                    file_stat = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                name = prefix + os.fsencode(entry.name).decode("utf-8", "backslashreplace")
                if stat.S_ISDIR(file_stat.st_mode):
                    if depth < _MOST_DEPTH:
                        waiting.append((entry.path, name + "/", depth + 1))
                    else:
                        self.cut = "folders more than %d levels deep were not searched" % _MOST_DEPTH
                elif stat.S_ISREG(file_stat.st_mode) or stat.S_ISLNK(file_stat.st_mode):
                    yield FoundFile(name, label + name, entry.path, file_stat)

    def _inside(self, links: List[FoundFile], roots: List[str]) -> Iterator[FoundFile]:
        """Yields the links to a regular file below one of the roots."""
        for link in links:
            path = os.path.realpath(link.path)
            if os.path.isfile(path) and any(path.startswith(root.rstrip("/") + "/") for root in roots):
                yield FoundFile(link.relative, link.shown, path, os.stat(path))
