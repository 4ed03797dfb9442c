"""Edits single values in the text of a YAML file; every other byte is kept.

Values are located by the parser's marks and replaced in the text. Only new values are generated from data, so comments,
order, quotes, indentation and unknown keys are never touched.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import yaml

from seatrial import SeatrialError
from seatrial.suite.yaml.problem import KeyPath, printable
from seatrial.suite.yaml.source import Source, YamlMap

_WIDTH = 120
_PLAIN = re.compile(r"[A-Za-z_](?:[A-Za-z0-9_./()%+ -]*[A-Za-z0-9_.()%+-])?")
# Words that YAML 1.1 or 1.2 does not read as text.
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


class Tall(YamlMap):
    """A map in a list, written with one line per key."""


def scalar(value: Any) -> str:
    """Plain if that is safe for every YAML reader, else in quotes."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        text = repr(value)
        # YAML 1.1 reads `1e-05` as text; with a decimal point, every reader reads a number.
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return '"' + printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def flow_text(value: Any) -> str:
    """YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(_flow_items(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow_items(value)) + "]"
    return scalar(value)


def _flow_items(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"{scalar(str(key))}: {flow_text(item)}" for key, item in value.items()]
    return list(map(flow_text, value))


def wrapped_text(value: Any, indent: int, newline: str = "\n") -> str:
    """YAML on one line if it is short enough, else with as many items per line as fit."""
    text = flow_text(value)
    if not isinstance(value, dict | list | tuple) or len(text) + indent + 20 <= _WIDTH:
        return text
    first, *rest = _flow_items(value)
    lines = [" " * indent + first]
    for item in rest:
        if len(lines[-1]) + 2 + len(item) < _WIDTH:
            lines[-1] += f", {item}"
        else:
            lines[-1] += ","
            lines.append(" " * indent + item)
    return text[0] + newline + newline.join(lines) + text[-1]


class Indent(NamedTuple):
    """The indentation of a file: inside maps, and of list items below their key."""

    maps: int = 2
    lists: int = 2


def block_text(value: Any, column: int, indent: Indent) -> list[str]:
    """YAML lines. Nested maps are blocks; a list of scalars is in brackets, a list of maps has one line per map."""
    if isinstance(value, list | tuple):
        return [line for item in value for line in block_item(item, column, indent)]
    lines: list[str] = []
    for key, item in value.items():
        name = " " * column + scalar(str(key)) + ":"
        listed = isinstance(item, list) and bool(item) and isinstance(item[0], dict)
        if listed or (isinstance(item, dict) and item):
            lines += [name, *block_text(item, column + (indent.lists if listed else indent.maps), indent)]
        else:
            lines += f"{name} {wrapped_text(item, column + indent.maps)}".split("\n")
    return lines


def block_item(item: Any, column: int, indent: Indent) -> list[str]:
    if isinstance(item, Tall) and item:
        first, *rest = block_text(item, column + 2, indent)
        return [f"{' ' * column}- {first.lstrip()}", *rest]
    return [f"{' ' * column}- {flow_text(item)}"]


KeyValue = tuple[yaml.Node, yaml.Node]


class CannotEdit(SeatrialError):
    """The file's entries cannot be changed one by one. It was not changed."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"cannot edit {file} (nothing was written): {why}")


def check_data(source: Source, wanted: Any) -> None:
    """Raises CannotEdit unless the edited text has exactly the wanted data."""
    if source.problems or source.data != wanted:
        why = "an entry uses an anchor, an alias, a merge or unusual YAML"
        raise CannotEdit(source.file, f"{why}; write the entry out in full and try again")


@dataclass(frozen=True)
class Comment:
    line: int
    column: int
    text: str
    start: int  # index in the text, including the blanks before it
    end: int


class Document:
    """The text of a file and `data`, which the file has after `apply`."""

    def __init__(self, source: Source) -> None:
        """The text must be non-empty, without a byte order mark."""
        self._source = source
        self.text = source.text
        self.root: yaml.Node = yaml.compose(source.text, Loader=yaml.CSafeLoader)
        self.data: Any = msgspec.to_builtins(source.data)  # values shared by a YAML alias become separate
        self._changed: set[KeyPath] = set()  # maps in which only some keys change
        self._newline = "\r\n" if "\r\n" in source.text else "\n"
        self._edits: list[tuple[int, int, str]] = []
        self._indent = self._indentation()
        self._comments: list[Comment] | None = None

    def find(self, path: Sequence[str | int]) -> KeyValue | None:
        """The key and value at `path`; None if they are missing or merged in."""
        node, found = self.root, None
        for part in path:
            found = _entry(node, part)
            if found is None:
                return None
            node = found[1]
        return found

    def set(self, path: KeyPath, values: Mapping[str, Any]) -> YamlMap:
        """Sets keys of the map at `path`, creating it if needed, and returns it. A value of None removes the key."""
        around = self.data
        for depth, part in enumerate(path, 1):
            self._changed.add(path[:depth])
            if isinstance(around, dict) and not isinstance(around.get(part), dict):
                around[part] = {}
            around = around[part]
        for key, value in values.items():
            if value is None:
                around.pop(key, None)
            else:
                around[key] = value
        made: YamlMap = around
        return made

    def append(self, path: KeyPath, key: str, item: Any) -> None:
        """Appends `item` to the list `key` of the map at `path`; the other items are kept as written."""
        around = self.set(path, {})
        old = around.get(key)
        around[key] = [*(old if isinstance(old, list) else []), item]

    def remove_comments(self, path: Sequence[str | int], lines: Sequence[int]) -> None:
        for comment in self.comments(path):
            if comment.line in lines:
                span = (comment.start, comment.end)
                if self._is_alone(comment):
                    span = (self._line_start(comment.start), self._next_line(comment.end))
                self._edits.append((*span, ""))

    def comments(self, path: Sequence[str | int]) -> list[Comment]:
        """The comments of the entry at `path`: on its lines, and directly above its key."""
        found = self.find(path)
        if found is None:
            return []
        first = found[0].start_mark.line
        last = first + self.text.count("\n", found[0].start_mark.index, _end(self.text, found[1]))
        everywhere = self._all_comments()
        whole = {one.line for one in everywhere if self._is_alone(one)}
        while first in whole:  # comment lines count from 1, so this is the line above
            first -= 1
        return [comment for comment in everywhere if first < comment.line <= last + 1]

    def apply(self) -> Source:
        """Returns the edited file. Raises CannotEdit unless it has exactly the wanted data."""
        self._change(self.root, (), self._source.data, self.data)
        # A stable sort keeps edits at the same position in their order.
        parts, position = [], 0
        for start, end, new_text in sorted(self._edits, key=lambda one: one[:2]):
            if start < position and end <= position:  # inside a part that is replaced or removed
                continue
            parts += [self.text[position:start], new_text]
            position = max(position, end)
        after = Source(self._source.file, "".join([*parts, self.text[position:]]), limits=self._source.limits)
        check_data(after, self.data)
        return after

    def _change(self, around: Any, path: KeyPath, old: Any, new: Any) -> None:
        """Edits the text of a map or list with the data `old`, so that it has the data `new`."""
        if isinstance(old, list):
            old, new = dict(enumerate(old)), dict(enumerate(new))
        added: YamlMap = {}
        for key, value in new.items():
            found, inside = _entry(around, key), (*path, key)
            if key in old and old[key] == value:
                continue
            if found is None:
                added[key] = value
            elif inside in self._changed and isinstance(found[1], yaml.MappingNode):
                self._change(found[1], inside, old[key], value)
            elif inside in self._changed:
                self._edits.append(self._filling(around, found, value))
            elif isinstance(value, list) and old[key] and value[:-1] == old[key]:
                self._edits.append(self._appending(found[1], value[-1]))
            else:
                self._replace(around, found, value)
        for found in [_entry(around, key) for key in old if key not in new]:
            if found is not None:
                self._take_out(around, found)
        if added:
            self._edits.append(self._addition(around, added))

    def _appending(self, items: Any, new: Any) -> tuple[int, int, str]:
        end = _end(self.text, items.value[-1])
        if items.flow_style:
            return (end, end, f", {flow_text(new)}")
        return self._insertion(end, block_item(new, items.start_mark.column, self._indent))

    def _addition(self, around: Any, new: YamlMap) -> tuple[int, int, str]:
        """Adds new keys after the last one of a map."""
        if around.flow_style:
            pairs = flow_text(new)[1:-1]
            at = _end(self.text, around.value[-1][1]) if around.value else around.start_mark.index + 1
            return (at, at, f", {pairs}" if around.value else pairs)
        lines = block_text(new, around.value[0][0].start_mark.column, self._indent)
        return self._insertion(_end(self.text, around.value[-1][1]), lines)

    def _filling(self, around: Any, found: KeyValue, new: YamlMap) -> tuple[int, int, str]:
        """Replaces a missing or `null` value by a map."""
        key, value = found
        start, end = value.start_mark.index, value.end_mark.index
        if around.flow_style:
            return (start, end, f" {flow_text(new)}")
        lines = block_text(new, key.start_mark.column + self._indent.maps, self._indent)
        if start == end and self.text[start:].partition("\n")[0].strip():  # a comment follows the key
            return self._insertion(start, lines)
        return (start, end, self._newline + self._newline.join(lines))

    def _replace(self, around: Any, found: KeyValue, value: Any) -> None:
        key, old = found
        start, end = old.start_mark.index, _end(self.text, old)
        if isinstance(old, yaml.CollectionNode) and not old.flow_style and isinstance(value, dict | list) and value:
            lines = block_text(value, old.start_mark.column, self._indent)
            self._edits.append((start, end, self._newline.join(lines).lstrip(" ")))
            return
        if isinstance(around, yaml.CollectionNode) and around.flow_style:
            text = flow_text(value)
        else:
            text = wrapped_text(value, key.start_mark.column + self._indent.maps, self._newline)
        if self.text[start:end] != text:
            blank = "" if start and self.text[start - 1] in " \t\n" else " "
            self._edits.append((start, end, blank + text))

    def _take_out(self, around: Any, found: KeyValue) -> None:
        key, value = found
        start, end = key.start_mark.index, _end(self.text, value)
        if not around.flow_style:
            self._edits.append((self._line_start(start), self._next_line(end), ""))
            return
        index = around.value.index(found)
        if index > 0:
            start = _end(self.text, around.value[index - 1][1])
        elif len(around.value) > 1:
            end = around.value[1][0].start_mark.index
        self._edits.append((start, end, ""))

    def _insertion(self, index: int, lines: list[str]) -> tuple[int, int, str]:
        at = self._next_line(index)
        return at, at, "".join(line + self._newline for line in lines)

    def _is_alone(self, comment: Comment) -> bool:
        """Whether nothing else is on its line."""
        return not self.text[self._line_start(comment.start) : comment.start].strip()

    def _line_start(self, index: int) -> int:
        return self.text.rfind("\n", 0, index) + 1

    def _next_line(self, index: int) -> int:
        """Start of the next line; adds a missing final line break."""
        at = self.text.find("\n", index) + 1
        if at == 0:
            at = len(self.text)
            if not any(edit[0] == at for edit in self._edits):
                self._edits.append((at, at, self._newline))
        return at

    def _indentation(self) -> Indent:
        """The indentation of the file's first nested block map and block list."""
        found: dict[type[yaml.Node], int] = {}
        for around in self.root.value if isinstance(self.root, yaml.SequenceNode) else [self.root]:
            for pair in _block_pairs(around):
                for key, inner in (pair, *_block_pairs(pair[1])):
                    found.setdefault(type(inner), inner.start_mark.column - key.start_mark.column)
        maps = max(1, found.get(yaml.MappingNode, 2))
        return Indent(maps, max(0, found.get(yaml.SequenceNode, maps)))

    def _all_comments(self) -> list[Comment]:
        """Comments: `#` outside scalars, at the start of a line or after a blank."""
        if self._comments is None:
            events = yaml.parse(self.text, Loader=yaml.CSafeLoader)
            scalars: Iterable[Any] = (event for event in events if isinstance(event, yaml.ScalarEvent))
            spans = [(one.start_mark.index, one.end_mark.index) for one in scalars]
            self._comments, offset, scalar = [], 0, 0
            for number, line in enumerate(self.text.splitlines(keepends=True), 1):
                at = line.find("#")
                while at >= 0:
                    index = offset + at
                    while scalar < len(spans) and spans[scalar][1] <= index:
                        scalar += 1
                    inside = scalar < len(spans) and spans[scalar][0] <= index
                    if not inside and (at == 0 or line[at - 1] in " \t"):
                        text = line[at:].rstrip("\r\n")
                        blanks = len(line[:at]) - len(line[:at].rstrip(" \t"))
                        self._comments.append(Comment(number, at + 1, text, index - blanks, index + len(text)))
                        break
                    at = line.find("#", at + 1)
                offset += len(line)
        return self._comments


def _block_pairs(node: yaml.Node) -> list[KeyValue]:
    """The entries of a map with a block map or block list as value."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return [
        pair for pair in pairs if isinstance(pair[1], yaml.CollectionNode) and not pair[1].flow_style and pair[1].value
    ]


def _entry(node: yaml.Node | None, name: str | int) -> KeyValue | None:
    """The entry of a map by key, or of a list by index, where the item is its own key."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == name:
                return key, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(name, int) and name < len(node.value):
        return node.value[name], node.value[name]
    return None


def _end(text: str, node: yaml.Node) -> int:
    """Index where a value's own text ends. The parser ends a block only where the next node starts."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    end: int = node.end_mark.index
    start: int = node.start_mark.index
    return start + len(text[start:end].rstrip()) if end > start else end
