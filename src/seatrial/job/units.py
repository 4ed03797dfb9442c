"""Durations and sizes as people write them, and the numbers that they mean."""

import math
import re
from typing import Any

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
DURATION_PATTERN = r"^(\d+(\.\d+)?(ms|s|m|h|d))+$"  # for a JSON Schema

_BYTES = {"": 1, **{unit: 1024 ** (n + 1) for n, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"))}}
_BYTES |= {unit: 1000 ** (n + 1) for n, unit in enumerate(("K", "M", "G", "T", "P"))}
SIZE = re.compile(r"(\d+(?:\.\d+)?)((?:[KMGTP]i?))B?")
SIZE_PATTERN = r"^\d+(\.\d+)?[KMGTP]i?B?$"


def parse_duration(value: Any) -> float:
    """Seconds of `90`, `"20m"`, `"1h30m"`, `"500ms"`."""
    seconds = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str) and _DURATION.fullmatch(value.strip()):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(value))
    if not math.isfinite(seconds) or seconds <= 0:
        raise ValueError(
            f"{value!r} is not a duration; write seconds (90) or units (500ms, 20m, 1h30m, 2d), more than 0"
        )
    return seconds


def parse_size(value: Any) -> int:
    """Bytes of `"16Gi"`, `"1.5G"`, `"512MiB"`. A bare number is refused: nobody means 16 bytes of memory."""
    match = SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or float(match[1]) <= 0:
        raise ValueError(
            f"{value!r} is not a size; write a number with a unit: 512Mi, 16Gi, 1.5T (or M, G: powers of 1000)"
        )
    return int(float(match[1]) * _BYTES[match[2]])


def format_size(size_bytes: float) -> str:
    for unit in ("Pi", "Ti", "Gi", "Mi", "Ki"):
        if size_bytes >= _BYTES[unit]:
            return f"{size_bytes / _BYTES[unit]:.4g}{unit}"
    return f"{size_bytes:.0f}"
