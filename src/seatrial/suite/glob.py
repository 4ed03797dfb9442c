"""The one form of globs for names: of cells, axis values, tags, steps and figures. Globs of files are another thing."""

import re
from functools import lru_cache


def glob_matches(pattern: str, name: str) -> bool:
    """`*` is any text, `?` one character. Everything else is itself: brackets too, for the ids of cells have them."""
    return _compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.compile("".join(parts), re.DOTALL)
