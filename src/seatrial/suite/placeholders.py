"""Placeholders, `${axis}` and `${axis.field}`, in a suite: their names, and how fields are filled with their values."""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

from pydantic import BaseModel

from seatrial.suite.yaml.problem import KeyPath

PLACEHOLDER = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")  # `$${` is a literal `${`
IN_PATTERN = re.compile(r"(?<!\$)\$\{[^}]*\}")


class Fill(Enum):
    """How placeholders in a field are filled, if not as plain text: `Annotated[..., Fill.PATTERN]`."""

    PATTERN = "pattern"  # a regular expression: values are escaped
    TYPED = "typed"  # a placeholder alone becomes the value itself, for example a number
    NEVER = "never"


class PlaceholderText(NamedTuple):
    """A text with a placeholder, and its path."""

    path: KeyPath
    text: str
    fill: Fill | None


def placeholders(text: str) -> Iterator[str]:
    """The names of the placeholders in `text`."""
    for match in PLACEHOLDER.finditer(text):
        if match[1] is None:
            yield match[2]


def has_placeholder(text: str) -> bool:
    return next(placeholders(text), None) is not None


def as_glob(text: str) -> str:
    """A glob that matches every value that `text` can have."""
    return PLACEHOLDER.sub(lambda match: match[1] or "*", text)


def look_up(name: str, values: Mapping[str, Any]) -> Any:
    """Returns the value of `axis` or `axis.field`. Raises KeyError."""
    axis, *fields = name.split(".")
    value = values[axis]
    for field in fields:
        if not isinstance(value, dict):
            raise KeyError(name)
        value = value[field]
    return value


def as_text(value: Any) -> str:
    """A value as it appears in a command: as YAML would write it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def filled_texts(
    data: Any, model: Any = None, path: KeyPath = (), how: Fill | None = None
) -> Iterator[PlaceholderText]:
    """Texts with placeholders in `data`. `model` was made from `data`, if it has the same shape."""
    if how is Fill.NEVER:
        return
    if isinstance(data, str):
        if "${" in data:
            yield PlaceholderText(path, data, how)
    elif isinstance(data, Mapping):
        fields = _fields(type(model)) if isinstance(model, BaseModel) else {}
        for key, item in data.items():
            name, own = fields.get(key, ("", None))
            made = getattr(model, name) if name else model.get(key) if isinstance(model, Mapping) else None
            yield from filled_texts(item, made, (*path, key), own or how)
    elif isinstance(data, list | tuple):
        same = isinstance(model, list | tuple) and len(model) == len(data)
        for index, item in enumerate(data):
            yield from filled_texts(item, model[index] if same else None, (*path, index), how)


@cache
def _fields(model: type[BaseModel]) -> dict[str, tuple[str, Fill | None]]:
    """Fields by the name that users write."""
    return {
        field.alias or name: (name, next((one for one in field.metadata if isinstance(one, Fill)), None))
        for name, field in model.model_fields.items()
    }
