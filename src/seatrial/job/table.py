"""How cells read wherever they are shown: which axis makes the columns of a table, and how many there are."""

from collections.abc import Mapping


def table_axes(sizes: Mapping[str, int]) -> tuple[tuple[str, ...], str]:
    """The axes of the rows and the axis of the columns ("" for a plain list), from how many values each has.

    Machines make the columns where there are any: what people ask is which runtime works on which machine, and a suite
    has more of everything else. Else it is the last axis. All other axes that vary make the rows together.
    """
    if len(sizes) < 2:
        return tuple(sizes), ""
    varying = [axis for axis, size in sizes.items() if size > 1]
    if "machine" in sizes:
        column = "machine"
    elif len(varying) == 1:
        column = next(axis for axis in reversed(list(sizes)) if axis != varying[0])
    else:
        column = (varying or list(sizes))[-1]
    rows = tuple(axis for axis in varying if axis != column)
    return rows or (next(axis for axis in sizes if axis != column),), column


def count(number: int, one: str, many: str = "") -> str:
    """`1 cell`, `1,200 cells`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
