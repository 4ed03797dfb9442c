"""Placeholders, `${axis}` and `${axis.field}`, in a suite: their names, and how fields are filled with their values."""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

PLACEHOLDER = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")  # `$${` is a literal `${`
IN_PATTERN = re.compile(r"(?<!\$)\$\{[^}]*\}")


class Fill(Enum):
    """How placeholders in a field are filled, if not as plain text: `Annotated[..., Fill.PATTERN]`."""

    PATTERN = "pattern"  # a regular expression: values are escaped
    TYPED = "typed"  # a placeholder alone becomes the value itself, for example a number
    NEVER = "never"


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
