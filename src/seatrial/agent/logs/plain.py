"""Lines as patterns see them: without what acts on a terminal, and without the `[h] ` that says whose a line is."""

from __future__ import annotations

import re
from typing import Tuple

_ESCAPES = re.compile(rb"\x1b(?:\[[0-9;:?<=>]*[ -/]*[@-~]|\][^\x07\x1b\n\r]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])")
_PREFIX = re.compile(rb"\[(\d{1,6})\] ?")


def plain(data: bytes) -> bytes:
    return _ESCAPES.sub(b"", data) if b"\x1b" in data else data


def host_of(line: bytes) -> Tuple[int, int]:
    """Whose a line is, and how long what says so is. A line that does not say is host 0's."""
    prefix = _PREFIX.match(line)
    return (int(prefix.group(1)), prefix.end()) if prefix else (0, 0)
