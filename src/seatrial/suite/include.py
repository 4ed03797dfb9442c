"""One suite out of several files: entries are merged by name, and every entry remembers its file."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seatrial.suite.yaml.problem import Problem, SourceMark, SuiteError, nearest
from seatrial.suite.yaml.source import Source, read_source

SECTIONS = ("targets", "machines", "runtimes", "secrets", "env", "trials")
_MOST_PATH = 4000  # characters; no file system here takes more
MAX_FILES = 200


class Written:
    """The data of a suite and where each part of it stands; without files, nowhere."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.problems: list[Problem] = []
        self.incomplete = False  # a file of it could not be read: names may be missing that are in it
        self.owners: dict[tuple[str, ...], Source] = {}  # of an entry (section, name), or of a top-level field
        self.root: Source | None = None

    def find(
        self, path: tuple[str | int, ...], key: bool = False
    ) -> tuple[SourceMark | None, str | None, tuple[str, ...]]:
        top = tuple(str(part) for part in path[:2])
        source = self.owners.get(top) or self.owners.get(top[:1]) or self.root
        if source is None:
            return None, None, ()
        mark, raw = source.find(path, key)
        return mark, raw, source.chain


def read_written(path: Path) -> Written:
    """Read `path` and all that it includes. Raises SuiteError only when `path` itself has no data at all."""
    written = Written({})
    written.root = source = read_source(path)
    _Merge(written).take(source, path, (path,))
    return written


class _Merge:
    def __init__(self, written: Written) -> None:
        self._written = written
        self._seen: set[str] = set()

    def take(self, source: Source, path: Path, chain: tuple[Path, ...]) -> None:
        self._seen.add(os.path.realpath(path))
        self._written.problems += source.problems
        if not isinstance(source.data, dict):
            self._written.incomplete = True
            if not source.problems:
                what = "is empty" if source.data is None else "holds no map"
                self._problem(source, (), f"the file {what}; a suite is a map with `trials`")
            return
        root = source is self._written.root
        for field, value in source.data.items():
            if field in SECTIONS:
                self._section(source, field, value)
            elif root or field not in ("name", "include"):
                self._field(source, field, value)
        for index, name in _includes(source.data):
            self._include(source, index, path.parent / name, chain)

    def _section(self, source: Source, section: str, entries: Any) -> None:
        if entries is None:
            return
        if not isinstance(entries, dict):
            self._problem(source, (section,), f"`{section}` is a map: each entry has its name")
            return
        merged = self._written.data.setdefault(section, {})
        for name, entry in entries.items():
            first = self._written.owners.get((section, name))
            if first is not None:
                mark, _ = first.find((section, name), key=True)
                where = f"{mark.file}:{mark.line}:{mark.column}"
                self._problem(
                    source, (section, name), f"{name!r} of `{section}` is also at {where}; rename one", key=True
                )
                continue
            merged[name] = entry
            self._written.owners[section, name] = source

    def _field(self, source: Source, field: str, value: Any) -> None:
        first = self._written.owners.get((field,))
        if first is not None:
            mark, _ = first.find((field,), key=True)
            self._problem(source, (field,), f"{field!r} is also at {mark.file}:{mark.line}:{mark.column}", key=True)
            return
        self._written.data[field] = value
        self._written.owners[(field,)] = source

    def _include(self, source: Source, index: int, path: Path, chain: tuple[Path, ...]) -> None:
        at = ("include", index)
        if "\0" in str(path) or len(str(path)) > _MOST_PATH:
            self._written.incomplete = True
            self._problem(source, at, "this cannot be the name of a file")
            return
        real = os.path.realpath(path)
        if real in [os.path.realpath(file) for file in chain]:
            circle = " -> ".join(str(file) for file in (*chain, path))
            self._problem(source, at, f"includes go in a circle: {circle}")
        elif real in self._seen:
            return
        elif len(self._seen) >= MAX_FILES:
            self._problem(source, at, f"more than {MAX_FILES} files")
        else:
            try:
                inner = read_source(path, tuple(str(file) for file in chain))
            except SuiteError as error:
                self._written.incomplete = True
                known = _siblings(path)
                hint = nearest(path.name, known) if known and not os.path.exists(path) else ""
                for problem in error.problems:
                    self._problem(source, at, f"{path}: {problem.message}{hint}")
                return
            self.take(inner, path, (*chain, path))

    def _problem(self, source: Source, path: tuple[str | int, ...], message: str, key: bool = False) -> None:
        mark, _ = source.find(path, key)
        self._written.problems.append(Problem(message, mark, chain=source.chain))


def _includes(data: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Those that are texts; what else is wrong with the field, the model says."""
    names = data.get("include")
    for index, name in enumerate(names if isinstance(names, list) else []):
        if isinstance(name, str) and name:
            yield index, name


def _siblings(path: Path) -> list[str]:
    try:
        return [name for name in os.listdir(path.parent) if name.endswith((".yaml", ".yml"))]
    except OSError:
        return []
