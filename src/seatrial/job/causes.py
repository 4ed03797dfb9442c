"""Identifies causes by their message, without the numbers, paths and ids that differ between runs.

The id of a cause is a hash of its message. A message that was reworded is hashed in its first wording, so that a known
cause does not become new. `wording.txt` has today's wording of each such message and, indented below it, the first one.
`{a}`, `{b}` stand for values, which may be reworded messages themselves, and `#` for a number. A wording alone never
changed, but has such values. Of several wordings that match, the first one counts.
"""

import hashlib
import re
from functools import cache
from pathlib import Path

from seatrial.job.results import Cause, CellResult, RunResults
from seatrial.job.verdict import CELLS_WORST_FIRST, Verdict

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


HEADLINE_CHARACTERS = 300


def cause_id(verdict: Verdict, text: str) -> str:
    """A hash of the message without numbers, paths and ids, in its first wording: the same in every run and version."""
    return hashlib.sha256(f"{verdict} {first_wording(normalised(text))}".encode()).hexdigest()[:6]


# Parts of a message that differ between runs: addresses, folders of paths, ids, numbers.
_DIFFERING = (
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "#"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "#"),
    (re.compile(r"(?<![\w/])~?/(?:[^\s/:'\"]+/)+"), "/"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,}\b"), "#"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "#"),
    (re.compile(r"\s+"), " "),
)


def normalised(text: str) -> str:
    for pattern, instead in _DIFFERING:
        text = pattern.sub(instead, text)
    return text.strip()


def headline_of_cell(cell: CellResult) -> str:
    """The headline of the deciding attempt, else the reason of the cell."""
    last = next((one for one in reversed(cell.attempts) if one.verdict is cell.verdict), cell.attempts[-1])
    text = last.headline or last.why or cell.why or last.exit.message or str(cell.verdict)
    return text[: 10 * HEADLINE_CHARACTERS].strip().partition("\n")[0][:HEADLINE_CHARACTERS]


def causes_by_cell(results: RunResults) -> dict[str, list[Cause]]:
    """The causes of each cell by hash: that of its headline first, then the worst."""
    found: dict[str, list[Cause]] = {}
    for cause in results.causes:
        for one in cause.cells:
            found.setdefault(one, []).append(cause)
    for cell in results.cells:
        if cell.attempts and len(own := found.get(cell.hash, [])) > 1:
            first = cause_id(cell.verdict, headline_of_cell(cell))
            own.sort(key=lambda cause: (cause.id != first, CELLS_WORST_FIRST.index(cause.verdict)))
    return found
