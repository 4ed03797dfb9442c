"""The fingerprint of all that a cell's figures depend on. Figures of two fingerprints never mix."""

import hashlib
import json
from typing import Any

from seatrial.suite import Cell

# Of what the agent finds: the rest (memory to the byte) differs between machines that are the same.
COUNTED = ("cpu", "cores", "gpu")


def fingerprint(cell: Cell, hardware: dict[str, Any]) -> str:
    """Eight hex digits of the cell's work and the hardware that it ran on."""
    seen = {key: hardware.get(key) for key in COUNTED}
    return hashlib.sha256((cell.work + json.dumps(seen, sort_keys=True, default=str)).encode()).hexdigest()[:8]
