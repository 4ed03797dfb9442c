"""Former wordings of messages, so that a reworded message does not make a known cause new.

The id of a cause is a hash of its message. A message that was reworded is hashed in its first wording.
"""

import re
from functools import cache

# Today's wording, and the first one. `{a}`, `{b}` stand for values, `#` for a number that today's wording leaves out.
FORMER = (
    (
        "token {a} is not the server's own most likely token (behind by {b})",
        "token {a} is not the likeliest by the server's own figures: it is {b} behind",
    ),
)
_VALUE = re.compile(r"\{([a-z])\}")


@cache
def _rows() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Each row as a pattern of today's wording, in which every number is `#`, and the template of the first one."""
    found = []
    for today, first in FORMER:
        parts = _VALUE.split(re.sub(r"\d+(?:[.,:]\d+)*", "#", today))
        pattern = "".join(f"(?P<{part}>.+?)" if place % 2 else re.escape(part) for place, part in enumerate(parts))
        found.append((re.compile(pattern), re.sub(r"\d+(?:[.,:]\d+)*", "#", first)))
    return tuple(found)


@cache
def first_wording(normalised: str) -> str:
    """A normalised message in its first wording; one that was never reworded is returned unchanged."""
    for pattern, first in _rows():
        if match := pattern.fullmatch(normalised):
            return _VALUE.sub(lambda value: match[value[1]], first)
    return normalised
