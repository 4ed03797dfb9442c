"""Values as YAML text, for the places of a file that are new. Plain where that is safe for every reader of YAML."""

import re
from typing import Any, NamedTuple

_WIDTH = 120
_PLAIN = re.compile(r"[A-Za-z_](?:[A-Za-z0-9_./()%+ -]*[A-Za-z0-9_.()%+-])?")
# What YAML 1.1 or 1.2 takes for something else than text.
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


class Tall(dict[str, Any]):
    """A map in a list that has a line for each of its keys."""


def scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = repr(value)
        # `1e-05` is text to readers of YAML 1.1; with a point in it, it is a number to all.
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    if isinstance(value, int):
        return str(value)
    text = str(value)
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else _quoted(text)


def flow(value: Any) -> str:
    """On one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar(str(key))}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value)


def wrapped(value: Any, indent: int, newline: str = "\n") -> str:
    """On one line where that is short enough, else a line for as many items as fit."""
    text = flow(value)
    if not isinstance(value, dict | list | tuple) or len(text) + indent + 20 <= _WIDTH:
        return text
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    items = (
        [f"{scalar(str(key))}: {flow(item)}" for key, item in value.items()]
        if isinstance(value, dict)
        else [flow(item) for item in value]
    )
    lines = [" " * indent + items[0]]
    for item in items[1:]:
        if len(lines[-1]) + 2 + len(item) < _WIDTH:
            lines[-1] += f", {item}"
        else:
            lines[-1] += ","
            lines.append(" " * indent + item)
    return opening + newline + newline.join(lines) + closing


class Indent(NamedTuple):
    """How far a file indents what is inside of a map, and the items of a list below their key."""

    maps: int = 2
    lists: int = 2


def block(value: Any, column: int, indent: Indent) -> list[str]:
    """As lines. Maps inside maps are blocks; a list of plain values is in brackets, one of maps has a line for each."""
    if isinstance(value, list | tuple):
        return [line for item in value for line in block_item(item, column, indent)]
    lines: list[str] = []
    for key, item in value.items():
        name = " " * column + scalar(str(key)) + ":"
        listed = isinstance(item, list) and bool(item) and isinstance(item[0], dict)
        if listed or (isinstance(item, dict) and item):
            lines += [name, *block(item, column + (indent.lists if listed else indent.maps), indent)]
        else:
            lines += f"{name} {wrapped(item, column + indent.maps)}".split("\n")
    return lines


def block_item(item: Any, column: int, indent: Indent) -> list[str]:
    if isinstance(item, Tall) and item:
        first, *rest = block(item, column + 2, indent)
        return [f"{' ' * column}- {first.lstrip()}", *rest]
    return [f"{' ' * column}- {flow(item)}"]


def _quoted(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(escapes.get(char) or (char if char.isprintable() else _escaped(char)) for char in text) + '"'


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
