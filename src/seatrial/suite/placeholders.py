"""`${axis}` and `${axis.field}` in what users write: which names occur, and how a field takes their values."""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

PLACEHOLDER = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")  # `$${` is a literal `${`
IN_PATTERN = re.compile(r"(?<!\$)\$\{[^}]*\}")


class Fill(Enum):
    """How placeholders in a field are filled, where that is not as plain text: `Annotated[..., Fill.PATTERN]`."""

    PATTERN = "pattern"  # a regular expression: values stand for themselves
    TYPED = "typed"  # a placeholder alone becomes the value itself, a number say
    NEVER = "never"


def placeholders(text: str) -> Iterator[str]:
    """The names in `text`."""
    for match in PLACEHOLDER.finditer(text):
        if match[1] is None:
            yield match[2]


def has_placeholder(text: str) -> bool:
    return next(placeholders(text), None) is not None


def as_glob(text: str) -> str:
    """A glob for everything that `text` can become."""
    return PLACEHOLDER.sub(lambda match: match[1] or "*", text)


def look_up(name: str, values: Mapping[str, Any]) -> Any:
    """The value of `axis` or `axis.field`; KeyError when there is none."""
    axis, *fields = name.split(".")
    value = values[axis]
    for field in fields:
        if not isinstance(value, dict):
            raise KeyError(name)
        value = value[field]
    return value


def as_text(value: Any) -> str:
    """A value as it reads in a command: as YAML would write it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
