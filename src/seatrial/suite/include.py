"""Merges a suite's included files by entry name; every entry remembers its file."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from seatrial.suite.assign import Assigned, assign
from seatrial.suite.yaml.problem import KeyPath, Problem, SourceMark, SuiteError, nearest
from seatrial.suite.yaml.source import Source, YamlMap, read_source

SECTIONS = ("targets", "machines", "runtimes", "secrets", "env", "trials")
_MOST_PATH = 4000  # characters; no supported file system allows more
MAX_FILES = 200


class Written:
    """The data of a suite, with the file and line of each part if it was read from files."""

    def __init__(self, data: YamlMap) -> None:
        self.data = data
        self.problems: list[Problem] = []
        self.incomplete = False  # a file could not be read, so names may be missing
        self.root: Source | None = None
        self._owners: dict[KeyPath, Source] = {}  # of an entry (section, name), or of a top-level field
        self._seen: set[str] = set()
        self.assigned: list[Assigned] = []  # by `--set`

    def find(self, path: KeyPath, key: bool = False) -> tuple[SourceMark | None, str | None, tuple[str, ...]]:
        for one in reversed(self.assigned):
            if (found := one.find(path, key)) is not None:
                return (*found, ())
        source = self._owners.get(path[:2]) or self._owners.get(path[:1]) or self.root
        return (*source.find(path, key), source.chain) if source else (None, None, ())

    def take(self, source: Source, path: Path, chain: tuple[Path, ...]) -> None:
        """Adds a file and everything it includes. Errors go into `problems`."""
        self._seen.add(os.path.realpath(path))
        self.problems += source.problems
        if not isinstance(source.data, dict):
            self.incomplete = True
            if not source.problems:
                what = "the file is empty" if source.data is None else "not a map"
                self._problem(source, (), f"{what}; expected a map with `trials`")
            return
        for field, value in source.data.items():
            if field not in SECTIONS:
                if source is self.root or field not in ("name", "include"):
                    self._put(source, (field,), value, self.data)
            elif isinstance(value, dict):
                merged = self.data.setdefault(field, {})
                for name, entry in value.items():
                    self._put(source, (field, name), entry, merged)
            elif value is not None:
                self._problem(source, (field,), f"`{field}` must be a map of names to entries")
        names = source.data.get("include")
        for index, name in enumerate(names if isinstance(names, list) else []):
            if isinstance(name, str) and name:  # the model reports other errors in this field
                self._include(source, index, path.parent / name, chain)

    def _put(self, source: Source, path: tuple[str, ...], value: Any, into: YamlMap) -> None:
        first = self._owners.get(path)
        if first is None:
            into[path[-1]] = value
            self._owners[path] = source
            return
        mark, _ = first.find(path, key=True)
        what, advice = (f"{path[1]!r} of `{path[0]}`", "; rename one") if len(path) == 2 else (repr(path[0]), "")
        self._problem(source, path, f"duplicate {what}; first at {mark}{advice}", key=True)

    def _include(self, source: Source, index: int, path: Path, chain: tuple[Path, ...]) -> None:
        at = ("include", index)
        if "\0" in str(path) or len(str(path)) > _MOST_PATH:
            self.incomplete = True
            self._problem(source, at, "invalid file name")
            return
        real = os.path.realpath(path)
        if real in self._seen:
            if real in map(os.path.realpath, chain):
                circle = " -> ".join(str(file) for file in (*chain, path))
                self._problem(source, at, f"circular include: {circle}")
        elif len(self._seen) >= MAX_FILES:
            self._problem(source, at, f"too many files (limit {MAX_FILES})")
        else:
            try:
                inner = read_source(path, tuple(str(file) for file in chain))
            except SuiteError as error:
                self.incomplete = True
                known = []
                with contextlib.suppress(OSError):
                    known = [name for name in os.listdir(path.parent) if name.endswith((".yaml", ".yml"))]
                hint = nearest(path.name, known) if known and not os.path.exists(path) else ""
                for problem in error.problems:
                    self._problem(source, at, f"{path}: {problem.message}{hint}")
            else:
                self.take(inner, path, (*chain, path))

    def _problem(self, source: Source, path: KeyPath, message: str, key: bool = False) -> None:
        self.problems.append(Problem(message, source.find(path, key)[0], chain=source.chain))


def read_written(path: Path, overrides: Iterable[str] = ()) -> Written:
    """Reads `path` and everything it includes, and applies `--set`. Raises SuiteError only if `path` itself is not a
    map."""
    written = Written({})
    written.root = source = read_source(path)
    written.take(source, path, (path,))
    if not isinstance(source.data, dict):
        raise SuiteError(written.problems)
    for text in overrides:
        try:
            written.assigned.append(assign(written.data, text))
        except SuiteError as error:
            written.problems += error.problems
    return written
