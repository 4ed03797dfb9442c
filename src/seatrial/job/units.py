"""Parses and formats durations, sizes, units and counts."""

import math
import re
from collections.abc import Mapping
from typing import Any

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
DURATION_PATTERN = r"^(\d+(\.\d+)?(ms|s|m|h|d))+$"  # for a JSON Schema

_BYTES = {"": 1, **{unit: 1024 ** (n + 1) for n, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"))}}
_BYTES |= {unit: 1000 ** (n + 1) for n, unit in enumerate(("K", "M", "G", "T", "P"))}
SIZE = re.compile(r"(\d+(?:\.\d+)?)((?:[KMGTP]i?))B?")
SIZE_PATTERN = r"^\d+(\.\d+)?[KMGTP]i?B?$"


# Units of metrics by quantity, each as a multiple of the first in its row.
_UNITS = (
    {"s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "m": 60.0}
    | {"min": 60.0, "h": 3600.0, "d": 86400.0},
    {"B": 1.0, "bytes": 1.0} | {f"{unit}B": float(size) for unit, size in _BYTES.items() if unit},
)
_PER = re.compile(r"(.*)/(.*)")


def unit_factor(unit: str, to: str) -> float | None:
    """The factor that converts a metric from `unit` to `to`; None if they measure different quantities. An empty unit
    matches any unit."""
    if unit == to or not unit or not to:
        return 1.0
    for units in _UNITS:
        if unit in units and to in units:
            return units[unit] / units[to]
    per, per_to = _PER.fullmatch(unit), _PER.fullmatch(to)
    if per and per_to:  # tokens/s and tokens/ms
        above, below = unit_factor(per[1], per_to[1]), unit_factor(per[2], per_to[2])
        return above / below if above and below else None
    return None


def parse_duration(value: Any) -> float:
    """Parses `90`, `"20m"`, `"1h30m"` or `"500ms"` into seconds."""
    seconds = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str) and _DURATION.fullmatch(value.strip()):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(value))
    if not math.isfinite(seconds) or seconds <= 0:
        raise ValueError(f"invalid duration {value!r}; use seconds (90) or units (500ms, 20m, 1h30m, 2d), more than 0")
    return seconds


def parse_size(value: Any) -> int:
    """Parses `"16Gi"`, `"1.5G"` or `"512MiB"` into bytes. A number without a unit is an error."""
    match = SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or float(match[1]) <= 0:
        raise ValueError(f"invalid size {value!r}; use a number with a unit: 512Mi, 16Gi (or M, G: powers of 1000)")
    return int(float(match[1]) * _BYTES[match[2]])


def format_size(size_bytes: float) -> str:
    for unit in ("Pi", "Ti", "Gi", "Mi", "Ki"):
        if size_bytes >= _BYTES[unit]:
            return f"{size_bytes / _BYTES[unit]:.4g}{unit}"
    return f"{size_bytes:.0f}"


def table_axes(sizes: Mapping[str, int]) -> tuple[tuple[str, ...], str]:
    """The row axes and the column axis ("" for a plain list) of a table, from the number of values of each axis.

    Machines are the columns if there are any: users ask which runtime works on which machine, and there are usually
    fewer machines than other values. Else the last axis. All other axes that vary are the rows.
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
