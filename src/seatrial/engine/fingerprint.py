"""The fingerprint of all that a cell's figures depend on. Figures of two fingerprints never mix."""

import hashlib
import json
from typing import Any

from seatrial.job import COUNTED
from seatrial.suite import Cell


def fingerprint(cell: Cell, hardware: dict[str, Any]) -> str:
    """Eight hex digits of the cell's work and the hardware that it ran on; of hosts that differ, of all of theirs."""
    seen = {key: hardware.get(key) for key in (*COUNTED, *(["others"] if "others" in hardware else []))}
    return hashlib.sha256((cell.work + json.dumps(seen, sort_keys=True, default=str)).encode()).hexdigest()[:8]
