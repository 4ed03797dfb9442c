"""First wordings of messages, so that a reworded message does not make a known cause new.

The id of a cause is a hash of its message. A message that was reworded is hashed in its first wording. `wording.txt`
has today's wording of each such message and, indented below it, the first one. `{a}`, `{b}` stand for values, which may
be reworded messages themselves, and `#` for a number. A wording alone never changed, but has such values. Of several
wordings that match, the first one counts.
"""

import re
from functools import cache
from pathlib import Path

_VALUE = re.compile(r"\{([a-z])\}")
_ROW = re.compile(r"^(?! |;;)(.+)\n(?:    (.+)\n)?", re.MULTILINE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def wordings() -> list[tuple[str, str]]:
    """Today's wording and the first one of each row."""
    text = Path(__file__).with_name("wording.txt").read_text(encoding="utf-8")
    return [(today, first or today) for today, first in _ROW.findall(text)]


@cache
def _rows() -> tuple[tuple[tuple[str, ...], str, str], ...]:
    """Each row as the literal parts and the pattern of today's wording, with `#` for numbers, and the first wording."""
    found = []
    for today, first in wordings():
        parts = _VALUE.split(_NUMBER.sub("#", today))
        pattern = "".join(f"(?P<{part}>.+?)" if place % 2 else re.escape(part) for place, part in enumerate(parts))
        found.append((tuple(parts[::2]), pattern, _NUMBER.sub("#", first)))
    return tuple(found)


@cache
def first_wording(normalised: str) -> str:
    """A normalised message in its first wording; one that was never reworded is returned unchanged."""
    for literals, pattern, first in _rows():
        # Few rows have to be compiled.
        if all(part in normalised for part in literals) and (match := re.fullmatch(pattern, normalised)):
            return _VALUE.sub(lambda value: first_wording(match[value[1]]), first)
    return normalised
