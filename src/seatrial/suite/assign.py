"""`--set PATH=VALUE`: changes one field of a suite before the suite is checked.

A path has the names of a suite file, separated by dots, and indexes of lists: `trials.smoke.matrix.model[0]`. A name in
the suite that contains dots is found as it is. The value is YAML."""

import copy
import re
from typing import Any, NamedTuple

from seatrial.suite.yaml.problem import KeyPath, Problem, SourceMark, SuiteError, dotted, nearest
from seatrial.suite.yaml.source import Source, YamlMap

OPTION = "--set"
_END = r"(?=\.[^.]|\[|$)"  # of a part of a path
_NAME = re.compile(r"[^.\[\]]+" + _END)
_FIXED = re.compile(r"include\b|x-")  # used while the files are read
_ENTRIES = {"targets": "target", "machines": "machine", "runtimes": "runtime", "secrets": "secret", "trials": "trial"}


class Assigned(NamedTuple):
    """A change that was made."""

    path: KeyPath
    columns: tuple[int, ...]  # of each part of the path in the argument
    known: int  # number of its parts that the suite had before
    value: Source

    def find(self, path: KeyPath, key: bool) -> tuple[SourceMark, str | None] | None:
        """The position of what `path` names in the argument; None if the argument did not set it."""
        own = self.path[: len(path)]
        if path[: len(own)] != own or len(path) <= min(self.known, len(self.path) - 1):
            return None
        if len(path) > len(own):
            return self.value.find(path[len(own) :], key)
        root = self.value.root
        if root is None or key or own != self.path:
            return self.value.mark(1, self.columns[len(own) - 1]), None
        return self.value.mark(root.line, root.column), root.raw


def assign(data: YamlMap, text: str) -> Assigned:
    """Sets the field in `data`; parts that other fields share by YAML aliases are copied. Raises SuiteError."""
    name, equals, _ = text.partition("=")
    value = Source(OPTION, text, skip=len(name) + 1)

    def refuse(column: int, why: str) -> SuiteError:
        return SuiteError([Problem(why, value.mark(1, column))])

    if not equals or not name:
        raise refuse(1, "expected PATH=VALUE, such as runtimes.base.image=registry.example/base:2")
    if _FIXED.match(name):
        raise refuse(1, "--set cannot change `include` and `x-` fields; set the fields that use them")
    if value.problems:
        raise SuiteError(value.problems)
    path, columns, known = list[str | int](), list[int](), 0
    here: Any = data
    rest = name
    while rest:
        column = len(name) - len(rest) + 1
        inside = {f"[{index}]": index for index in range(len(here))} if isinstance(here, list) else here
        found = [one for one in inside if re.match(re.escape(one) + _END, rest)] if isinstance(inside, dict) else []
        new = _NAME.match(rest) if isinstance(here, dict) else None
        if not found and not new:
            what = f"a list of {len(here)}" if isinstance(here, list) else "neither a map nor a list"
            where = f"`{dotted(tuple(path))}` ({'a map' if isinstance(here, dict) else what})"
            raise refuse(column, f"{rest!r} is not in {where if path else 'the suite'}")
        token = max(found, key=len) if found else new[0] if new else ""
        if not found and len(path) == 1 and path[0] in _ENTRIES and token != rest:
            raise refuse(column, f"unknown {_ENTRIES[str(path[0])]} {token!r}{nearest(token, here)}")
        part = inside[token] if isinstance(here, list) else token
        path.append(part)
        columns.append(column)
        known += bool(found)
        rest = rest[len(token) :].removeprefix(".")
        if rest:
            old = here[part] if found else None
            here[part] = {} if old is None else copy.copy(old)
            here = here[part]
    here[path[-1]] = value.data
    return Assigned(tuple(path), tuple(columns), known, value)
