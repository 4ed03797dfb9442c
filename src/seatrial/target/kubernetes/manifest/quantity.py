"""Numbers as Kubernetes writes them."""

import math

_UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def cpu(cores: float) -> str:
    """Thousandths are the least that there is."""
    thousandths = max(1, math.ceil(round(cores * 1000, 3)))
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def size(size_bytes: int) -> str:
    """With the largest unit that says it exactly."""
    for unit, factor in _UNITS:
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return str(size_bytes)


def seconds(duration_s: float) -> int:
    """A limit on the server: whole seconds, never shorter than asked, and no more than the server can hold."""
    return min(max(1, math.ceil(duration_s)), (1 << 31) - 1)
