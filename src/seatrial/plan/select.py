"""Selects cells by id, axis, hash and tag."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from seatrial.job import Excluded
from seatrial.job.plan import PlannedCell
from seatrial.plan.plan import PlanError, cell_id
from seatrial.suite import Cell, glob_matches, nearest

_HASH = re.compile(r"/[0-9a-f]{1,8}")


C = TypeVar("C", Cell, PlannedCell)  # from a suite, or from a run folder


class Selection(msgspec.Struct, frozen=True):
    """Selects a cell if it matches any of `select` (or there are none) and has all `tags`.

    An expression in `select` is a cell id or a glob of ids (`*`, `?`), a trial name, `axis=value` (also `trial=` and
    `tag=`; values may be globs; all of several, separated by commas, must match), or `/` and the start of a hash.
    """

    select: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    pairwise: bool = False


def select(
    cells: Sequence[Cell], excluded: Sequence[Excluded], selection: Selection, known_tags: Iterable[str]
) -> tuple[list[Cell], list[Excluded]]:
    """Returns the selected cells, and the others as excluded. Raises PlanError if an expression matches nothing."""
    known = sorted(set(known_tags))
    for tag in selection.tags:
        if tag not in known:
            raise PlanError(f"--tag {tag!r} matches nothing{nearest(tag, known)}")
    meant: set[str] = set()
    by_hash = {f"/{cell.hash}": cell.id for cell in cells}
    for text in selection.select:
        means = _meaning(text)
        found = [by_hash[text]] if text in by_hash else [cell.id for cell in cells if means(cell)]
        if not found:
            raise PlanError(f"--select {text!r} matches nothing{_hint(text, cells, excluded, known)}")
        meant.update(found)
    wanted: list[Cell] = []
    others: list[Excluded] = []
    for cell in cells:
        lacking = [tag for tag in selection.tags if tag not in cell.tags]
        if lacking:
            others.append(Excluded(cell.trial, cell.axes, f"has no tag {' or '.join(map(repr, lacking))}", "tag"))
        elif selection.select and cell.id not in meant:
            others.append(Excluded(cell.trial, cell.axes, "not selected", "select"))
        else:
            wanted.append(cell)
    return wanted, others


def select_cells(cells: Sequence[C], text: str, where: str, excluded: Sequence[Excluded] = ()) -> list[C]:
    """The cells that match an expression of --select. Raises PlanError if `where` (a run, a suite) has none."""
    means = _meaning(text)
    found = [cell for cell in cells if means(cell)]
    if not found:
        hint = _hint(text, cells, excluded, sorted({tag for cell in cells for tag in cell.tags}))
        raise PlanError(f"cell not found: {text!r} in {where}{hint}")
    return found


def _meaning(text: str) -> Callable[[Cell | PlannedCell], bool]:
    if _HASH.fullmatch(text):
        return lambda cell: cell.hash.startswith(text[1:])
    terms = _terms(text)
    if terms:
        return lambda cell: all(_has(cell, axis, value) for axis, value in terms)
    return lambda cell: text == cell.trial or glob_matches(text, cell.id)


def _terms(text: str) -> list[tuple[str, str]]:
    """The axes and values of `axis=value,axis=value`; empty if `text` is an id or a glob of ids."""
    terms = [(axis.strip(), value.strip()) for axis, _, value in (term.partition("=") for term in text.split(","))]
    is_id = "=" not in text or {"[", "]"} & set(text) or any({"*", "?"} & set(axis) for axis, _ in terms)
    return [] if is_id else terms


def _has(cell: Cell | PlannedCell, axis: str, value: str) -> bool:
    if axis == "tag":
        return any(glob_matches(value, tag) for tag in cell.tags)
    have = cell.trial if axis == "trial" else cell.axes.get(axis)
    return have is not None and glob_matches(value, have)


def _hint(text: str, cells: Sequence[Cell | PlannedCell], excluded: Sequence[Excluded], tags: list[str]) -> str:
    """A suggestion, or that the combination is excluded."""
    if text.startswith("/"):
        return "; use a hash of 8 hex digits, shown by `seatrial plan`"
    terms = _terms(text)
    if not terms:
        for combination in excluded:
            if text == cell_id(combination.trial, combination.axes):
                return f": excluded ({combination.why})"
        return nearest(text, dict.fromkeys([*(cell.trial for cell in cells), *(cell.id for cell in cells[:5000])]))
    labels: dict[str, dict[str, None]] = {"tag": dict.fromkeys(tags)}
    for one in (*cells, *excluded):
        for axis, label in (("trial", one.trial), *one.axes.items()):
            labels.setdefault(axis, {})[label] = None
    for axis, value in terms:
        if axis not in labels:
            return f": unknown axis {axis!r}{nearest(axis, labels)}"
        if not any(glob_matches(value, label) for label in labels[axis]):
            return f": no {axis} {value!r}{nearest(value, labels[axis])}"
    return ": all matching combinations are excluded"
