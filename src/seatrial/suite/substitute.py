"""`${axis}` and `${axis.field}` in the strings of a trial; `$${` is a literal `${`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from seatrial.suite.cell import Cell

_PLACEHOLDER = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")


def substitute(value: Any, cell: Cell, typed: bool = False) -> Any:
    """`value` with the cell's values put into every string in it, keys of maps left alone.

    A string that is one placeholder and nothing else becomes the axis value itself, a number say, when `typed`.
    """
    if isinstance(value, str):
        return fill(value, cell.axes, cell.values, typed)
    if isinstance(value, dict):
        return {key: substitute(item, cell, typed) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(substitute(item, cell, typed) for item in value)
    return value


def placeholders(text: str) -> Iterator[str]:
    """The names in `text`."""
    for match in _PLACEHOLDER.finditer(text):
        if match[1] is None:
            yield match[2]


def has_placeholder(text: str) -> bool:
    return next(placeholders(text), None) is not None


def as_glob(text: str) -> str:
    """A glob for everything that `text` can become."""
    return _PLACEHOLDER.sub(lambda match: match[1] or "*", text)


def look_up(name: str, values: Mapping[str, Any]) -> Any:
    """The value of `axis` or `axis.field`; KeyError when there is none."""
    axis, *fields = name.split(".")
    value = values[axis]
    for field in fields:
        if not isinstance(value, dict):
            raise KeyError(name)
        value = value[field]
    return value


def fill(text: str, labels: Mapping[str, str], values: Mapping[str, Any], typed: bool = False) -> Any:
    """`text` with the values put in; KeyError for a name that is not among them, which loading has ruled out."""
    whole = _PLACEHOLDER.fullmatch(text)
    if typed and whole and whole[1] is None:
        return look_up(whole[2], values)

    def put(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[1]
        value = look_up(match[2], values)
        # A map or a list as a whole reads as the label of the cell's id.
        return labels[match[2]] if isinstance(value, dict | list) and match[2] in labels else as_text(value)

    return _PLACEHOLDER.sub(put, text)


def as_text(value: Any) -> str:
    """A value as it reads in a command: as YAML would write it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


_IN_PATTERN = re.compile(r"(?<!\$)\$\{[^}]*\}")


def fill_pattern(pattern: str, cell: Cell) -> str:
    """The pattern with the cell's values in it; they stand for themselves, whatever they would mean as a pattern."""
    text: str = fill(pattern, {axis: re.escape(label) for axis, label in cell.axes.items()}, _escaped(cell.values))
    return text


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return re.escape(value) if isinstance(value, str) else value
