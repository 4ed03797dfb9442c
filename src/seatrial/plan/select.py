"""Which of the valid cells are wanted: by id, axis, hash and tag."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import msgspec

from seatrial.job import Excluded
from seatrial.plan.plan import UnknownName
from seatrial.suite import Cell, glob_matches, nearest

_HASH = re.compile(r"/[0-9a-f]{1,8}")


class Selectable(Protocol):
    """A cell of a suite, or what a run folder says of one."""

    @property
    def id(self) -> str: ...
    @property
    def hash(self) -> str: ...
    @property
    def trial(self) -> str: ...
    @property
    def axes(self) -> dict[str, str]: ...
    @property
    def tags(self) -> frozenset[str]: ...


S = TypeVar("S", bound=Selectable)


class Selection(msgspec.Struct, frozen=True):
    """A cell is wanted if any of `select` means it (or there are none) and it has all `tags`.

    An expression of `select` is the id of a cell or a glob of ids (`*`, `?`), the name of a trial, `axis=value` (also
    `trial=` and `tag=`; values may be globs; several with commas must all hold), or `/` and the beginning of a hash.
    """

    select: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    pairwise: bool = False


def unselected_reasons(
    cells: Sequence[Cell], excluded: Sequence[Excluded], selection: Selection, known_tags: Iterable[str]
) -> list[str]:
    """For each cell why it is not wanted: `tag: ...`, `select: ...`; empty when it is. Raises UnknownName."""
    known = sorted(set(known_tags))
    for tag in selection.tags:
        if tag not in known:
            raise UnknownName("--tag", tag, nearest(tag, known))
    meant: set[str] = set()
    by_hash = {f"/{cell.hash}": cell.id for cell in cells}
    for text in selection.select:
        means = _meaning(text)
        found = [by_hash[text]] if text in by_hash else [cell.id for cell in cells if means(cell)]
        if not found:
            raise UnknownName("--select", text, _hint(text, cells, excluded, known))
        meant.update(found)
    return [_why_not(cell, selection, meant) for cell in cells]


def select_cells(cells: Sequence[S], text: str) -> list[S]:
    """Those that an expression as of --select means. Raises UnknownName."""
    means = _meaning(text)
    found = [cell for cell in cells if means(cell)]
    if not found:
        raise UnknownName("cell", text, _hint(text, cells, (), sorted({tag for cell in cells for tag in cell.tags})))
    return found


def _why_not(cell: Cell, selection: Selection, meant: set[str]) -> str:
    lacking = [tag for tag in selection.tags if tag not in cell.tags]
    if lacking:
        return f"tag: has no tag {' or '.join(map(repr, lacking))}"
    return "select: not selected" if selection.select and cell.id not in meant else ""


def _meaning(text: str) -> Callable[[Selectable], bool]:
    if _HASH.fullmatch(text):
        return lambda cell: cell.hash.startswith(text[1:])
    if _is_axes(text):
        terms = [term.partition("=") for term in text.split(",")]
        return lambda cell: all(_has(cell, axis.strip(), value.strip()) for axis, _, value in terms)
    return lambda cell: text == cell.trial or glob_matches(text, cell.id)


def _is_axes(text: str) -> bool:
    """`axis=value,axis=value`; with a glob before the `=` it is one for ids."""
    return "=" in text and not {"[", "]"} & set(text) and not any({"*", "?"} & set(axis) for axis in _axes(text))


def _axes(text: str) -> list[str]:
    return [term.partition("=")[0] for term in text.split(",")]


def _has(cell: Selectable, axis: str, value: str) -> bool:
    if axis == "tag":
        return any(glob_matches(value, tag) for tag in cell.tags)
    have = cell.trial if axis == "trial" else cell.axes.get(axis)
    return have is not None and glob_matches(value, have)


def _hint(text: str, cells: Sequence[Selectable], excluded: Sequence[Excluded], tags: list[str]) -> str:
    """What was perhaps meant, or that it is an excluded combination."""
    if text.startswith("/"):
        return "; a hash has 8 hex digits, see `seatrial plan`"
    if not _is_axes(text):
        for combination in excluded:
            if text == excluded_id(combination):
                return f": it is excluded ({combination.why})"
        return nearest(text, dict.fromkeys([*(cell.trial for cell in cells), *(cell.id for cell in cells[:5000])]))
    labels: dict[str, dict[str, None]] = {"tag": dict.fromkeys(tags)}
    for trial, axes in [
        *((cell.trial, cell.axes) for cell in cells),
        *((combination.trial, combination.axes) for combination in excluded),
    ]:
        labels.setdefault("trial", {})[trial] = None
        for axis, label in axes.items():
            labels.setdefault(axis, {})[label] = None
    for axis, _, value in (term.partition("=") for term in text.split(",")):
        if axis.strip() not in labels:
            return f": unknown axis {axis.strip()!r}{nearest(axis.strip(), labels)}"
        if not any(glob_matches(value.strip(), label) for label in labels[axis.strip()]):
            return f": no {axis.strip()} {value.strip()!r}{nearest(value.strip(), labels[axis.strip()])}"
    return ": every such combination is excluded"


def excluded_id(combination: Excluded) -> str:
    inside = ",".join(f"{axis}={label}" for axis, label in combination.axes.items())
    return f"{combination.trial}[{inside}]" if inside else combination.trial
