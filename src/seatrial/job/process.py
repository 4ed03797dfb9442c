"""Which process of this machine a number means: numbers are given out again, and all of them after its next start."""

from functools import cache
from pathlib import Path


@cache
def boot_id() -> str:
    """Of the machine's last start; empty where there is no /proc."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def process_start(pid: int) -> int | None:
    """When the process started, in clock ticks since boot: field 22 of its stat, counted after the name in brackets.
    None: there is none, or it has ended and nobody asked how."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
