"""The failures of a run that say the same, and the smallest place that explains them.

Every finding that is not good counts, so a cell may be in several causes. A place is at most two values of axes
(`runtime=torch-2.9,machine=A100`); the hosts count as an axis. The number of attempts does not: what fails is tried
again, so that would explain every failure. A place is named only where chance would hardly have put the failures
there. Of a few cells that is never sure: if they are exactly those of a place, that is noted without such a claim."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from seatrial.checks.evidence import error_line, tidy
from seatrial.job import (
    HEADLINE_CHARACTERS,
    Cause,
    CellResult,
    Finding,
    Verdict,
    cause_id,
    headline_of_cell,
    normalised,
    worst,
)

CHANCE = 0.05  # a place is named when failures at random would give one as good more rarely than this
COVERED = 0.8  # of a cause's cells, in the place that explains it
SECOND_VALUE = 0.02  # how much better a place of two values must fit than one of a single value
HOST = "host"
EVIDENCE_CHARACTERS = 20_000  # that are searched for an error; what checks quote is shorter

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
    printed = (error_line(finding.evidence[:EVIDENCE_CHARACTERS]) for finding in telling)
    line = next((line for line in printed if line), "") or telling[0].message or telling[0].step
    return tidy(line[:EVIDENCE_CHARACTERS]).strip().partition("\n")[0][:HEADLINE_CHARACTERS]


def find_causes(cells: Sequence[CellResult]) -> list[Cause]:
    """Largest first; of one size as their cells come."""
    groups: dict[tuple[Verdict, str], dict[str, str]] = {}  # what is said -> by the hash of each cell, its own words
    for cell in cells:
        if not cell.verdict.good and cell.attempts:
            for verdict, said in _lines(cell):
                groups.setdefault((verdict, normalised(said)), {}).setdefault(cell.hash, said)
    places = _Places([cell for cell in cells if cell.attempts])
    causes = [_cause(verdict, text, group, places) for (verdict, text), group in groups.items()]
    return sorted(causes, key=lambda cause: -len(cause.cells))


def _lines(cell: CellResult) -> Iterator[tuple[Verdict, str]]:
    """The headline of a cell, then that of each finding where there are several."""
    yield cell.verdict, headline_of_cell(cell)
    bad = [finding for finding in cell.findings if not finding.verdict.good]
    if len(bad) > 1:
        yield from ((finding.verdict, headline([finding])) for finding in bad)


def _cause(verdict: Verdict, text: str, group: dict[str, str], places: "_Places") -> Cause:
    found = places.explaining(tuple(group))
    return Cause(
        id=cause_id(verdict, text),
        verdict=verdict,
        text=Counter(group.values()).most_common(1)[0][0],
        cells=list(group),
        place=dict(found.place),
        there=found.there,
        of=found.of,
        shared=dict(found.shared),
    )


class _Explanation(NamedTuple):
    place: _Place = ()
    there: int = 0  # of the cause's cells
    of: int = 0  # of all cells
    shared: _Place = ()  # a place of exactly these cells, which may be chance


class _Places:
    """Every place of at most two values of axes that differ, with the number of cells there."""

    def __init__(self, cells: Sequence[CellResult]) -> None:
        self._count = len(cells)
        axes = {cell.hash: _axes(cell) for cell in cells}
        values: dict[str, set[str]] = {}
        for own in axes.values():
            for axis, some in own.items():
                values.setdefault(axis, set()).update(some)
        # An axis that not all cells have tells trials apart, though it has one value.
        telling = {
            axis
            for axis, some in values.items()
            if len(some) > 1 or sum(axis in own for own in axes.values()) < len(axes)
        }
        self._values = {
            hash_: [[(axis, value) for value in some] for axis, some in own.items() if axis in telling]
            for hash_, own in axes.items()
        }
        self._sizes = Counter(place for own in self._values.values() for place in _places(own))
        self._known: dict[tuple[str, ...], _Explanation] = {}

    def explaining(self, hashes: tuple[str, ...]) -> _Explanation:
        """The place that fits these cells best, if it explains them."""
        if len(hashes) < 2 or len(hashes) == self._count:
            return _Explanation()
        if hashes not in self._known:
            self._known[hashes] = self._explaining(hashes)
        return self._known[hashes]

    def _explaining(self, hashes: tuple[str, ...]) -> _Explanation:
        failed = len(hashes)
        hits = Counter(place for one in hashes for place in _places(self._values[one]))
        best: tuple[float, _Place, int, int] | None = None
        for place, there in hits.items():
            of = self._sizes[place]
            if there < COVERED * failed or of == self._count:
                continue
            fit = 2 * there / (of + failed) - SECOND_VALUE * len(place)
            if best is None or fit > best[0]:
                best = fit, place, there, of
        if best is None:
            return _Explanation()
        _, place, there, of = best
        if self._chance(failed, there, of) <= CHANCE:
            return _Explanation(place, there, of)
        return _Explanation(shared=place if there == of == failed else ())

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


def _axes(cell: CellResult) -> dict[str, tuple[str, ...]]:
    own: dict[str, tuple[str, ...]] = {"trial": (cell.trial,)}
    own |= {axis: (value,) for axis, value in cell.axes.items()}
    hosts = tuple(dict.fromkeys(cell.attempts[-1].place.hosts))
    return {**own, HOST: hosts} if hosts else own


def _places(values: list[list[_Value]]) -> Iterable[_Place]:
    one = ((value,) for of_axis in values for value in of_axis)
    two = (pair for a, b in itertools.combinations(values, 2) for pair in itertools.product(a, b))
    return itertools.chain(one, two)
