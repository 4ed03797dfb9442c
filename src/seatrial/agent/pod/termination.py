"""What a pod says of its trial when it is over: the termination message, and the exit code."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, List, Optional, Tuple

from ..run.ending import Ending

VARIABLE, DEFAULT = "SEATRIAL_TERMINATION", "/dev/termination-log"
TERMINATION_BYTES = 4096  # of a message that Kubernetes keeps
_MESSAGE_CHARACTERS = 1000
CODES = {"timeout": 124, "stall": 124, "cancelled": 143}

Done = List[Tuple[str, Optional[int]]]


def exit_code(ending: Ending) -> int:
    if ending.outcome == "exited":
        return min(ending.code or 0, 255)
    return CODES.get(ending.outcome, 1)


def message(ending: Ending, steps: Done) -> bytes:
    """At most MOST_BYTES: without the steps, and with less and less of the text, where that is needed."""
    facts: Dict[str, Any] = {
        "seatrial": 1,
        "outcome": ending.outcome,
        "code": ending.code,
        "message": ending.message[:_MESSAGE_CHARACTERS],
        "left": ending.left,
        "wall_s": round(time.time(), 3),
    }
    data = _json(dict(facts, steps=[list(step) for step in steps]))
    while len(data) > TERMINATION_BYTES:
        data = _json(facts)
        facts["message"] = facts["message"][: len(facts["message"]) // 2]
    return data


def write(data: bytes) -> None:
    """Kubernetes makes the file before it starts the container; where there is none, it is not asked for."""
    try:
        fd = os.open(os.environ.get(VARIABLE) or DEFAULT, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(fd, data)
    except OSError:
        pass  # the node's disk is full: there is still the exit code
    finally:
        os.close(fd)


def _json(facts: Dict[str, Any]) -> bytes:
    text = json.dumps(facts, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
