"""Numbers as programs print them, `1,234.5` too. What is none is not taken for one: `1_000`, `3.2s`, `fast`."""

from __future__ import annotations

import math
import re
from typing import Any, List, Optional, Sequence

_AROUND = b" \t\r'\"`,;:()[]{}<>|="
_BEFORE = rb"[%s]*(?:(?:tensor|[Aa]rray|np\.\w+|jnp?\.\w+)\()?" % re.escape(_AROUND)
_NUMBER = rb"([-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|inf(?:inity)?|nan))"
_AFTER = rb"(?:[%s.]*|,.*\))" % re.escape(_AROUND)
_TOKEN = re.compile(_BEFORE + _NUMBER + _AFTER, re.IGNORECASE)
# The commas of 1,234,567.8: groups of three digits to the end of the whole part, and not the items of a list.
_THOUSANDS = re.compile(rb"(?<=\d),(?=\d{3}(?:,\d{3})*(?!\d|,))")
_LONGEST = 400  # characters of what may be a number
_PLAIN = b"0123456789.+-" + _AROUND
_OVERFLOW = re.compile(rb"[eE]\+?\d{3}")


def number(token: Optional[bytes]) -> Optional[float]:
    """None for what is no number. `nan` and the infinities are numbers."""
    if token is None or len(token) > _LONGEST or b"_" in token:  # which Python alone takes for a part of a number
        return None
    try:
        return float(token.rstrip(b","))
    except ValueError:
        found = _TOKEN.fullmatch(_THOUSANDS.sub(b"", token))
        return None if found is None else float(found.group(1))


def whole(value: Optional[float]) -> Optional[int]:
    """A step's number."""
    return int(value) if value is not None and math.isfinite(value) and value == int(value) else None


def all_plain(tokens: Sequence[bytes]) -> bool:
    """Whether every token is surely a finite number: found for thousands at once, by the letters that they lack."""
    joined = b" ".join(tokens)
    letters = joined.translate(None, _PLAIN)
    if letters and (letters.translate(None, b"eE") or _OVERFLOW.search(joined)):
        return False
    return b"" not in tokens


def to_json(value: Optional[float]) -> Any:
    """As records have it: JSON has no word for some numbers, and for what was no number at all there is `?`."""
    if value is None:
        return "?"
    if math.isfinite(value):
        return int(value) if value == int(value) and abs(value) < 1e15 else value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def all_to_json(values: Sequence[Optional[float]]) -> List[Any]:
    return [to_json(value) for value in values]
