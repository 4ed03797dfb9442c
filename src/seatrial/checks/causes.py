"""The failures of a run that say the same, and the smallest place that explains them.

A place is at most two values of axes (`runtime=torch-2.9,machine=A100`); the host counts as an axis. How many attempts
were made does not: what fails is tried again, so that would explain every failure. A place is named only where chance
would hardly have put the failures there: a cause with no such place is spread."""

import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from seatrial.checks.evidence import error_line, tidy
from seatrial.job import Cause, CellResult, Finding, Verdict, worst

CHANCE = 0.05  # a place is named when failures at random would give one as good more rarely than this
COVERED = 0.8  # of a cause's cells, in the place that explains it
SECOND_VALUE = 0.02  # how much better a place of two values must fit than one of a single value
HOST = "host"
HEADLINE_CHARACTERS = 300

_Value = tuple[str, str]
_Place = tuple[_Value, ...]


def headline(findings: Sequence[Finding]) -> str:
    """The one line that says why a cell is not good: the error that a program printed, else what the check says."""
    verdict = worst(finding.verdict for finding in findings)
    if verdict.good:
        return ""
    telling = [finding for finding in findings if finding.verdict is verdict]
    if verdict in (Verdict.SLOWER, Verdict.FASTER):
        return f"{telling[0].check}: {verdict}"
    printed = (error_line(finding.evidence) for finding in telling)
    line = next((line for line in printed if line), "") or telling[0].message or telling[0].step
    return tidy(line).strip().partition("\n")[0][:HEADLINE_CHARACTERS]


def find_causes(cells: Sequence[CellResult]) -> list[Cause]:
    """Largest first; of one size the worst first, as their cells come."""
    groups: dict[tuple[Verdict, str], list[CellResult]] = {}
    for cell in cells:
        if not cell.verdict.good and cell.attempts:
            groups.setdefault((cell.verdict, normalised(_said(cell))), []).append(cell)
    ran = [cell for cell in cells if cell.attempts]
    places = _Places(ran)
    causes = [_cause(verdict, text, group, places) for (verdict, text), group in groups.items()]
    return sorted(causes, key=lambda cause: -len(cause.cells))


def cause_id(verdict: Verdict, text: str) -> str:
    """The same in every run: of what is said, without what differs from one time to the next."""
    return hashlib.sha256(f"{verdict} {normalised(text)}".encode()).hexdigest()[:6]


# What differs between two tellings of the same: addresses, paths but for their last part, ids, numbers.
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


def _said(cell: CellResult) -> str:
    last = cell.attempts[-1]
    said = last.headline or last.why or cell.why or last.exit.message or str(cell.verdict)
    return said[: 10 * HEADLINE_CHARACTERS].strip().partition("\n")[0][:HEADLINE_CHARACTERS]


def _cause(verdict: Verdict, text: str, cells: list[CellResult], places: "_Places") -> Cause:
    found = places.explaining(cells)
    shown = Counter(_said(cell) for cell in cells).most_common(1)[0][0]
    place, there, of = found if found else ((), 0, 0)
    return Cause(
        id=cause_id(verdict, text),
        verdict=verdict,
        text=shown,
        cells=[cell.hash for cell in cells],
        place=dict(place),
        there=there,
        of=of,
    )


class _Places:
    """Every place of at most two values of axes that differ, with the cells that are there."""

    def __init__(self, cells: Sequence[CellResult]) -> None:
        self._count = len(cells)
        axes = {cell.hash: _axes(cell) for cell in cells}
        values: dict[str, set[str]] = {}
        for own in axes.values():
            for axis, value in own.items():
                values.setdefault(axis, set()).add(value)
        # An axis that not all cells have tells trials apart, though it has one value.
        telling = {
            axis
            for axis, some in values.items()
            if len(some) > 1 or sum(axis in own for own in axes.values()) < len(axes)
        }
        self._values = {
            hash_: tuple((axis, value) for axis, value in own.items() if axis in telling) for hash_, own in axes.items()
        }
        self._sizes = Counter(place for own in self._values.values() for place in _places(own))

    def explaining(self, cells: list[CellResult]) -> tuple[_Place, int, int] | None:
        """The place that fits best, how many of the cause's cells are there, and how many cells are there in all."""
        if len(cells) < 2 or len(cells) == self._count:
            return None
        hits = Counter(place for cell in cells for place in _places(self._values[cell.hash]))
        best: tuple[float, _Place, int, int] | None = None
        for place, there in hits.items():
            of = self._sizes[place]
            if there < COVERED * len(cells) or of == self._count:
                continue
            fit = 2 * there / (of + len(cells)) - SECOND_VALUE * len(place)
            if best is None or fit > best[0]:
                best = fit, place, there, of
        if best is None or self._chance(len(cells), best[2], best[3]) > CHANCE:
            return None
        return best[1:]

    def _chance(self, failed: int, there: int, of: int) -> float:
        """How many places would hold so many of `failed` cells, were these drawn at random: a bound for the chance."""
        most = min(of, failed)
        ways = (_log_comb(of, hit) + _log_comb(self._count - of, failed - hit) for hit in range(there, most + 1))
        total = _log_comb(self._count, failed)
        return len(self._sizes) * sum(math.exp(one - total) for one in ways)


def _log_comb(n: int, k: int) -> float:
    if k > n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _axes(cell: CellResult) -> dict[str, str]:
    return {"trial": cell.trial, **cell.axes, HOST: cell.attempts[-1].place.host}


def _places(values: tuple[_Value, ...]) -> Iterable[_Place]:
    return itertools.chain(((value,) for value in values), itertools.combinations(values, 2))
