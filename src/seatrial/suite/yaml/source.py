"""A suite file as data with the position of each value.

Built from libyaml's events, which are limited in depth, number of values and alias expansion. Plain scalars follow
YAML 1.2 (`no`, `12:30`, `010` and dates are text).
"""

import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from seatrial.limited_yaml import MAX_VALUES, YamlLimit, limited_events
from seatrial.suite.yaml.problem import KeyPath, Problem, SourceMark, SuiteError, explain, printable

YamlMap = dict[str, Any]  # any YAML, as written
_M = TypeVar("_M", bound=BaseModel)


class FileLimits(NamedTuple):
    """Size limits of a file, the advice for a file that exceeds them, and how it is read."""

    what: str = "suite"
    max_bytes: int = 1 << 20
    max_values: int = MAX_VALUES
    too_large: str = "split it with `include`, or use `matrix`"
    too_many: str = "use `matrix`"
    texts: frozenset[str] = frozenset()  # keys of which a number, true or false is read as text


_SUITE = FileLimits()

_WORDS: dict[str, bool | None] = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_WORDS |= {word: word[0] in "tT" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_BEGINS_A_NUMBER = frozenset("0123456789+-.")
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,2})?")
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_TAGS = {None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))}


@dataclass(slots=True, eq=False)
class Node:
    """A value, its position, and the nodes inside it."""

    line: int
    column: int
    data: Any = None
    raw: str | None = None  # the text of a scalar that is not a string
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)  # of a map: position of each key
    items: "dict[str, Node] | list[Node] | None" = None


class Source:
    """A file that was read, without the first `skip` characters. `problems` has its YAML errors; `root` has what could
    still be read."""

    def __init__(
        self, file: str, text: str, chain: tuple[str, ...] = (), limits: FileLimits = _SUITE, skip: int = 0
    ) -> None:
        self.file = file
        self.chain = chain
        self.limits = limits
        self.problems: list[Problem] = []
        self.text = text
        self._lines: list[str] | None = None
        self.root: Node | None = YamlReader(self).read(" " * skip + text[skip:])

    @property
    def data(self) -> Any:
        return self.root.data if self.root else None

    def mark(self, line: int, column: int) -> SourceMark:
        if self._lines is None:
            self._lines = _LINE_END.split(self.text)
        return SourceMark(self.file, line, column, self._lines[line - 1] if line <= len(self._lines) else "")

    def report_at(self, node: Node, message: str) -> None:
        self.report(message, node.line, node.column)

    def report(self, message: str, line: int, column: int) -> None:
        self.problems.append(Problem(message, self.mark(line, column), chain=self.chain))

    def report_path(self, path: KeyPath, message: str, key: bool = False) -> None:
        self.problems.append(Problem(message, self.find(path, key)[0], chain=self.chain))

    def validated(self, model: type[_M], data: Any, path: KeyPath = ()) -> _M | None:
        """The model of `data`, which is at `path`. None if it has errors, which are then in `problems`."""
        try:
            return model.model_validate(data)
        except ValidationError as error:
            for loc, key, message in explain(error, model, lambda loc: self.find((*path, *loc))[1]):
                self.report_path((*path, *loc), message, key)
            return None

    def find(self, path: Sequence[str | int], key: bool = False) -> tuple[SourceMark, str | None]:
        """The position of the value at `path` (of its key, if `key`) or of the nearest enclosing value; its raw text.

        Skips parts of the path that do not exist (the name of a union's branch, a missing field).
        """
        node, raw = self.root, None
        if node is None:
            return self.mark(1, 1), None
        line, column = node.line, node.column
        for part in path:
            if isinstance(node.items, dict) and part in node.items:
                inner = node.items[str(part)]
            elif isinstance(node.items, list) and isinstance(part, int) and part < len(node.items):
                inner = node.items[part]
            else:
                continue
            at_key = node.keys.get(part) if isinstance(part, str) else None
            line, column = at_key if at_key and (key or inner.items) else (inner.line, inner.column)
            node, raw = inner, inner.raw
        return self.mark(line, column), raw


def read_source(path: Path, chain: tuple[str, ...] = (), limits: FileLimits = _SUITE) -> Source:
    """Reads a file. Raises SuiteError if it cannot be read as text."""
    return Source(str(path), read_text(path, chain, limits), chain, limits)


def read_text(path: Path, chain: tuple[str, ...] = (), limits: FileLimits = _SUITE) -> str:
    """Reads the text of a file. Raises SuiteError."""

    def refuse(why: str, line: int = 0, text: str = "") -> SuiteError:
        return SuiteError([Problem(why, SourceMark(str(path), line, 1, text) if line else None, str(path), chain)])

    try:
        # Checked before opening, because opening a pipe without a writer blocks forever.
        if not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):
            raise refuse("not a regular file")
        with path.open("rb") as file:
            raw = file.read(limits.max_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: NUL in the name
        raise refuse(f"cannot read the file: {getattr(error, 'strerror', None) or error}") from error
    if len(raw) > limits.max_bytes:
        size = f"{limits.max_bytes >> 20} MiB"
        raise refuse(f"the {limits.what} file is larger than {size}; {limits.too_large}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise refuse(f"not UTF-8 (byte {error.start}: 0x{raw[error.start]:02x}); save it as UTF-8", line) from error


class YamlReader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._anchors: dict[str, Node] = {}

    def read(self, text: str) -> Node | None:
        limits = self._source.limits
        try:
            return self._documents(limited_events(text, limits.max_values, limits.too_many))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
            if isinstance(error, YamlLimit):
                self._source.report(str(error.problem), line, column)
            else:
                self._source.report(*_syntax_problem(error, line, column, _LINE_END.split(text)))
        except yaml.reader.ReaderError as error:
            line = len(_LINE_END.findall(self._source.text[: error.position])) + 1
            self._source.report(f"invalid YAML: character {printable(chr(error.character))!r} is not allowed", line, 1)
        return None

    def _documents(self, events: Iterator[Any]) -> Node | None:
        root: Node | None = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    line = getattr(event.start_mark, "line", 0) + 1
                    split = " (split it with `include`)" if self._source.limits is _SUITE else ""
                    message = f"second YAML document; a {self._source.limits.what} file has one{split}"
                    self._source.report(message, line, 1)
                    return root
                root = self._node(next(events), events, 0)
        return root

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        node, last = Node(event.start_mark.line + 1, event.start_mark.column + 1), event.end_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            return self._anchors[str(event.anchor)]
        if event.tag not in _TAGS:
            self._source.report_at(node, f"unknown YAML tag {event.tag}; remove it")
        if isinstance(event, yaml.ScalarEvent):
            node.data = event.value
            if event.tag is None and event.implicit[0]:
                node.data = plain_value(event.value)
                if not isinstance(node.data, str):
                    node.raw = event.value
                elif last > node.line:
                    self._check_continued(node.line + 1, last)
        elif isinstance(event, yaml.SequenceStartEvent):
            node.items = items = []
            while not isinstance(inner := next(events), yaml.SequenceEndEvent):
                items.append(self._node(inner, events, depth + 1))
            node.data = [item.data for item in items]
        else:
            self._mapping(node, events, depth)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _check_continued(self, first: int, last: int) -> None:
        """Reports a `- ` that is indented so far that YAML takes it for more of the text above."""
        for line in range(first, last + 1):
            text = self._source.mark(line, 1).text
            if text.lstrip().startswith("- "):
                column = len(text) - len(text.lstrip()) + 1
                message = "wrong indentation: this `- ` continues the text above; align it with the other items"
                self._source.report(message, line, column)

    def _mapping(self, node: Node, events: Iterator[Any], depth: int) -> None:
        items: dict[str, Node] = {}
        merged: list[Node] = []
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._node(event, events, depth + 1)
            value = self._node(next(events), events, depth + 1)
            if key.data == "<<" and isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
                merged += value.items if isinstance(value.items, list) else [value]
            elif self._key_is_good(key, node):
                if key.data in self._source.limits.texts and value.raw is not None and value.data is not None:
                    value.data, value.raw = value.raw, None
                items[key.data] = value
                node.keys[key.data] = (key.line, key.column)
        for base in merged:
            if not isinstance(base.items, dict):
                self._source.report_at(base, "`<<` needs a map or a list of maps")
                continue
            for name, value in base.items.items():
                if name not in items:
                    items[name], node.keys[name] = value, base.keys[name]
        node.items = items
        node.data = {name: value.data for name, value in items.items()}

    def _key_is_good(self, key: Node, node: Node) -> bool:
        if not isinstance(key.data, str):
            advice = f'; write "{key.raw}"' if key.raw else ""
            text = "a list or map" if key.raw is None else f"{key.raw or 'nothing'}, which YAML does not read as text"
            self._source.report_at(key, f"expected text as a key, got {text}{advice}")
            return False
        if key.data in node.keys:
            line, column = node.keys[key.data]
            self._source.report_at(key, f"duplicate {key.data!r}; first at {self._source.file}:{line}:{column}")
            return False
        return True


def _syntax_problem(error: yaml.MarkedYAMLError, line: int, column: int, lines: list[str]) -> tuple[str, int, int]:
    """What is wrong, in words of the file instead of the parser, with its line and column."""
    why = " ".join(part for part in (error.context, error.problem) if part)
    text = lines[line - 1] if line <= len(lines) else ""
    indent = re.match(r"[ \t]*", text)[0]  # type: ignore[index]  # it always matches
    if "\t" in indent:
        return "indented with a tab; indent with spaces", line, indent.index("\t") + 1
    if "${" in text and error.context and "flow" in error.context:
        return 'quote text that contains ${…} inside [ ] or { }: "${…}"', line, text.index("${") + 1
    above = [(one, len(one) - len(one.lstrip())) for one in lines[: line - 1] if one.strip() and one.strip()[0] != "#"]
    if column == len(indent) + 1 and "expected key" in why:
        levels = sorted({level for _, level in above if level <= above[-1][1]} - {len(indent)})[-2:]
        near = " or ".join(map(str, levels))
        return f"wrong indentation: {len(indent)} spaces; the lines above use {near}", line, column
    if above and "mapping values" in why and ": " not in text[: column - 1]:  # the value above goes on in this line
        if len(indent) > above[-1][1]:
            return f"wrong indentation: {len(indent)} spaces; the line above uses {above[-1][1]}", line, len(indent) + 1
        return "the line above has no `: `; write `key: value`", line, len(indent) + 1
    meaning, start = next((_SYNTAX[part] for part in _SYNTAX if part in why), why), error.context_mark
    if start is not None and start.line + 1 < line and ("not closed" in meaning or "has no" in meaning):
        line, column = start.line + 1, start.column + 1  # where it begins
    return f"invalid YAML: {meaning}", line, column


_SYNTAX = {  # a part of libyaml's message
    "mapping values are not allowed": "a second `: ` in one line; quote the text that contains it",
    "could not find expected ':'": "expected `key: value`; this has no `: `",
    "expected ',' or ']'": "a `[` is not closed, or a comma is missing",
    "expected node content": "a `[` or `{` is not closed, or a value is missing",
    "expected ',' or '}'": "a `{` is not closed, or a comma is missing",
    "unexpected end of stream": "a quoted text is not closed",
    "cannot start any token": "quote text that starts with this character",
    "expected <document start>": "text after the end of the file's map; check its indentation",
}


def plain_value(text: str) -> Any:
    """The value of a scalar without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _BEGINS_A_NUMBER:
        return text
    if _INT.fullmatch(text):
        return int(text)
    # Digits with a leading zero, or too many of them, are a name.
    if _FLOAT.fullmatch(text) and not text.lstrip("+-").isdigit():
        return float(text)
    return text
