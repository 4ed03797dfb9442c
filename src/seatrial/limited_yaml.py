"""YAML with limits on nesting and on the number of values, for files that a user or a tool wrote.

libyaml's loader recurses at each level and crashes the process at some ten thousand; a few aliases of aliases stand for
billions of values. Both are checked on its events, before anything is built from them.
"""

import re
from collections.abc import Iterator
from typing import Any, NoReturn

import yaml

MAX_DEPTH = 50
MAX_VALUES = 200_000
_LONG_NUMBER = re.compile(r"[-+.]?[0-9][-+0-9_:.]{300,}")  # the value of 1:00:00:… takes quadratic time


class YamlLimit(yaml.MarkedYAMLError):
    """The text exceeds a limit, or an alias has no value. `problem` is the message."""


def limited_events(text: str | bytes, max_values: int = MAX_VALUES, advice: str = "") -> Iterator[Any]:
    """libyaml's events. Raises YamlLimit, with `advice` if there are too many values, and yaml.YAMLError."""
    open_: list[tuple[str | None, int]] = []  # anchor of each open list and map, and number of values before it
    anchors: dict[str, int | None] = {}  # number of values of each; None while it is open
    total = 0  # number of values

    def refuse(why: str) -> NoReturn:
        raise YamlLimit(problem=why, problem_mark=event.start_mark)

    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        kind = event.__class__
        if kind is yaml.ScalarEvent:
            total += 1
            if event.anchor:
                anchors[event.anchor] = 1
        elif kind is yaml.SequenceStartEvent or kind is yaml.MappingStartEvent:
            if len(open_) > MAX_DEPTH:
                refuse(f"nested too deeply (limit {MAX_DEPTH} levels)")
            open_.append((event.anchor, total))
            total += 1
            if event.anchor:
                anchors[event.anchor] = None
        elif kind is yaml.SequenceEndEvent or kind is yaml.MappingEndEvent:
            anchor, before = open_.pop()
            if anchor:
                anchors[anchor] = total - before
        elif kind is yaml.AliasEvent:
            known = anchors.get(event.anchor)
            if known is None:
                why = "is inside its own anchor" if event.anchor in anchors else "has no anchor before it"
                refuse(f"alias *{event.anchor} {why}")
            total += known
        else:
            anchors.clear()  # a new document
        if total > max_values:
            refuse(f"too many values, including aliases (limit {max_values:,}){advice and f'; {advice}'}")
        yield event


def load_all(text: str | bytes) -> list[Any]:
    """All documents, read as YAML 1.1, as Kubernetes does (0644 is octal). Raises yaml.YAMLError and ValueError."""
    for event in limited_events(text):
        plain = isinstance(event, yaml.ScalarEvent) and (event.implicit[0] or event.tag)
        if plain and _LONG_NUMBER.fullmatch(event.value):
            raise YamlLimit(problem="a number has too many digits (limit 300)", problem_mark=event.start_mark)
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))
