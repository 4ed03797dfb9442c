"""Groups failures with the same message into causes, each with the smallest place that explains it.

Every finding that is not good counts, so a cell may have several causes. A place is at most two axis values
(`runtime=torch-2.9,machine=A100`); hosts count as an axis. The attempt number does not: failures are retried, so it
would explain every one. A place is named only if the failures are unlikely to be there by chance. A few cells never
give that certainty: if they are exactly the cells of a place, it is reported as `shared` instead."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
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

CHANCE = 0.05  # highest chance that random failures fit a place as well, for it to be named
COVERED = 0.8  # least share of a cause's cells in the place that explains it
SECOND_VALUE = 0.02  # how much better a place of two axis values must fit than a single value
HOST = "host"
EVIDENCE_CHARACTERS = 20_000  # searched for an error line; checks quote less

_Value = tuple[str, str]
_Place = tuple[_Value, ...]


def headline(findings: Sequence[Finding]) -> str:
    """The line that explains why a cell is not good: the error that a program printed, else the check's message."""
    verdict = worst(finding.verdict for finding in findings)
    if verdict.good:
        return ""
    deciding = [finding for finding in findings if finding.verdict is verdict]
    if verdict in (Verdict.SLOWER, Verdict.FASTER):
        return f"{deciding[0].check}: {verdict}"
    printed = (error_line(finding.evidence[:EVIDENCE_CHARACTERS]) for finding in deciding)
    line = next((line for line in printed if line), "") or deciding[0].message or deciding[0].step
    return tidy(line[:EVIDENCE_CHARACTERS]).strip().partition("\n")[0][:HEADLINE_CHARACTERS]


def find_causes(cells: Sequence[CellResult]) -> list[Cause]:
    """Returns the causes, largest first; causes of equal size in the order of their cells."""
    groups: dict[tuple[Verdict, str], dict[str, str]] = {}  # normalised text -> cell hash -> text
    for cell in cells:
        if not cell.verdict.good and cell.attempts:
            for verdict, line in _lines(cell):
                groups.setdefault((verdict, normalised(line)), {}).setdefault(cell.hash, line)
    explain = cache(_Places([cell for cell in cells if cell.attempts]).explain)  # causes may be of the same cells
    causes = [_cause(verdict, text, group, explain(tuple(group))) for (verdict, text), group in groups.items()]
    return sorted(causes, key=lambda cause: -len(cause.cells))


def _lines(cell: CellResult) -> Iterator[tuple[Verdict, str]]:
    """The headline of a cell, then that of each bad finding if there are several."""
    yield cell.verdict, headline_of_cell(cell)
    bad = [finding for finding in cell.findings if not finding.verdict.good]
    if len(bad) > 1:
        yield from ((finding.verdict, headline([finding])) for finding in bad)


def _cause(verdict: Verdict, text: str, group: dict[str, str], found: "_Explanation") -> Cause:
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
    shared: _Place = ()  # place with exactly these cells, possibly by chance


class _Places:
    """Every place of at most two values of differing axes, with its number of cells."""

    def __init__(self, cells: Sequence[CellResult]) -> None:
        self._count = len(cells)
        axes = {cell.hash: _axes(cell) for cell in cells}
        values: dict[str, set[str]] = {}
        for own in axes.values():
            for axis, some in own.items():
                values.setdefault(axis, set()).update(some)
        # An axis that only some cells have distinguishes trials, even with a single value.
        differing = {
            axis
            for axis, some in values.items()
            if len(some) > 1 or sum(axis in own for own in axes.values()) < len(axes)
        }
        self._values = {
            hash_: [[(axis, value) for value in some] for axis, some in own.items() if axis in differing]
            for hash_, own in axes.items()
        }
        self._sizes = Counter(place for own in self._values.values() for place in _places(own))

    def explain(self, hashes: tuple[str, ...]) -> _Explanation:
        """Returns the place that fits these cells best, if it explains them."""
        failed = len(hashes)
        if failed < 2 or failed == self._count:
            return _Explanation()
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
        """Expected number of places with this many of `failed` random cells: an upper bound of the chance."""
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
