"""Reads the maps of a case file: names in either spelling, numbers that YAML reads as text, errors with positions."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeVar

from seatrial.kinds.serving.request import Case, Request
from seatrial.suite.yaml.problem import nearest
from seatrial.suite.yaml.source import Node, Source

E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")
_UPPER = re.compile(r"(?<!^)([A-Z])")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
MOST_U64 = (1 << 64) - 1


@lru_cache(maxsize=1000)
def snake(name: str) -> str:
    """Treats `maxNewTokens` and `max_new_tokens` as one name."""
    return _UPPER.sub(r"_\1", name).lower()


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


class Fields:
    """One map, by names in snake_case. An invalid value is reported and then counts as missing."""

    def __init__(self, source: Source, node: Node | None, known: tuple[str, ...], what: str) -> None:
        """A missing node or `null` is an empty map."""
        self._source, self._node = source, node
        self._written: dict[str, str] = {}  # by the name in snake_case
        self._items: Mapping[str, Node] = {}
        if node is not None and isinstance(node.items, dict):
            self._items = node.items
            for key, place in node.keys.items():
                name = snake(key)
                if name in self._written:
                    source.report(f"duplicate field {key!r}; first written as {self._written[name]!r}", *place)
                elif name in known:
                    self._written[name] = key
                else:
                    spelled = known if "_" in key or key.islower() else tuple(map(camel, known))
                    source.report(f"unknown field {key!r} of {what}{nearest(key, spelled)}", *place)
        elif node is not None and (node.data is not None or node.items is not None):
            self.report(f"{what} must be a map with {', '.join(known[:8])}; got {_named(node)}")

    def __contains__(self, name: str) -> bool:
        return name in self._written

    def spelled(self, name: str) -> str | None:
        """The name as spelled in the file."""
        return self._written.get(name)

    def get(self, name: str) -> Node | None:
        """The value; None if it is missing or `null`."""
        node = self._items[self._written[name]] if name in self._written else None
        return None if node is None or (node.items is None and node.data is None) else node

    def report(self, message: str, node: Node | None = None) -> None:
        at = node or self._node
        self._source.report(message, *((at.line, at.column) if at else (1, 1)))

    def map(self, name: str, known: tuple[str, ...]) -> "Fields":
        return Fields(self._source, self.get(name), known, f"`{self.spelled(name) or name}`")

    def maps(self, name: str, known: tuple[str, ...], what: str) -> Iterator["Fields"]:
        return (Fields(self._source, node, known, what) for node in self.list(name))

    def list(self, name: str) -> Iterator[Node]:
        node = self.get(name)
        if node is None:
            return
        if isinstance(node.items, list):
            yield from node.items
        else:
            self.report(f"`{self._written[name]}` must be a list; got {_named(node)}", node)

    def text(self, name: str) -> str | None:
        node = self.get(name)
        return None if node is None else self.text_of(node, self._written[name])

    def text_of(self, node: Node, name: str) -> str | None:
        """The text as written, also for `text: 42` and `text: yes`."""
        if isinstance(node.data, str):
            return node.data
        if node.items is None and node.raw:
            return node.raw
        self.report(f"`{name}` must be text; got {_named(node)}", node)
        return None

    def texts(self, name: str) -> tuple[str, ...]:
        found = (self.text_of(node, self._written[name]) for node in self.list(name))
        return tuple(text for text in found if text is not None)

    def flag(self, name: str) -> bool | None:
        return self._scalar(name, lambda value: value if isinstance(value, bool) else None, "true or false")

    def whole(self, name: str, most: int = (1 << 32) - 1) -> int | None:
        """A whole number, also as text ('99'), which is how protobuf writes large ones."""

        def read(value: object) -> int | None:
            digits = isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value)
            if digits or (isinstance(value, float) and value.is_integer()):
                value = int(value)  # type: ignore[call-overload]
            return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None

        return self._scalar(name, read, f"a whole number from 0 to {most}")

    def number(self, name: str) -> float | None:
        """A number, also 1e-4, which many YAML parsers read as text."""
        return self._scalar(name, _number, "a number")

    def logprob(self) -> float | None:
        """A number; None for NaN."""
        node = self.get("logprob")
        if node is not None and isinstance(node.data, str) and node.data.lstrip(".").lower() == "nan":
            return None
        return self._scalar("logprob", _number, "a number or NaN")

    def word(self, name: str, words: Iterable[E]) -> E | None:
        """A member of an enum, in any case: protobuf uses upper case."""
        by_text = {word.value: word for word in words}
        known = ", ".join(word.upper() for word in by_text)
        return self._scalar(name, lambda value: by_text.get(str(value).lower()), f"one of {known}")

    def _scalar(self, name: str, read: Callable[[object], T | None], what: str) -> T | None:
        node = self.get(name)
        value = None if node is None else read(node.data)
        if node is not None and value is None:
            self.report(f"`{self._written[name]}` must be {what}; got {_named(node)}", node)
        return value


def _number(value: object) -> float | None:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return float(value) if good else None  # type: ignore[arg-type]


def _named(node: Node) -> str:
    if isinstance(node.items, dict):
        return "a map"
    if isinstance(node.items, list):
        return "a list"
    if node.data is None:
        return "nothing"
    text = node.raw if node.raw is not None else repr(node.data)
    return text if len(text) <= 60 else text[:60] + "…"


def read_case(source: Source, node: Node, fields: Fields, request: Request, **expected: Any) -> Case:
    """The case with the fields that both formats have."""
    if "name" not in fields:
        fields.report("case has no `name`")
    return Case(
        name=fields.text("name") or "",
        request=request,
        single_shard_only=bool(fields.flag("single_shard_only")),
        tags=fields.texts("tags"),
        at=f"{source.file}:{node.line}",
        **expected,
    )
