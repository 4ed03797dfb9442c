"""How far a job is, for a person who watches: read from the agent's records while it writes them."""

import contextlib
from collections.abc import Sequence
from typing import Any

from seatrial.job import Unreadable, decode

MOST_CHARACTERS = 100


class Progress:
    """Fed with the records as they come, in blocks cut anywhere."""

    def __init__(self, steps: Sequence[str]) -> None:
        """`steps`: the names of the job's steps."""
        self.ready_at_s: float | None = None  # by the agent's clock, once its port has answered
        self._steps = steps
        self._rest = b""

    def feed(self, data: bytes) -> str:
        """The last of what `data` tells: the step that has started, or how far one says that it is; "": nothing."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self.ready_at_s is None:
            self.ready_at_s = next((at_s for at_s in map(_ready_at_s, lines) if at_s is not None), None)
        for line in reversed(lines):
            with contextlib.suppress(Unreadable, LookupError, TypeError, AttributeError):
                if b'"event":"step"' in line:
                    number: int = decode(line, dict[str, Any])["step"]
                    return self._steps[number]
                if b'"note":"progress"' in line:
                    text = _one_line(decode(line, dict[str, Any])["data"]["text"])
                    if text:
                        return text
        return ""


def _ready_at_s(line: bytes) -> float | None:
    if b'"event":"ready"' not in line:
        return None
    with contextlib.suppress(Unreadable, LookupError, TypeError, ValueError):
        record = decode(line, dict[str, Any])
        return float(record["at_s"]) if record["event"] == "ready" else None
    return None


def _one_line(text: str) -> str:
    """As a job said it, made fit for one line of a terminal."""
    shown = "".join(character if character.isprintable() else " " for character in text[: 4 * MOST_CHARACTERS])
    return " ".join(shown.split())[:MOST_CHARACTERS]
