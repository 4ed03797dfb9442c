"""What a journal says was done already: the state from which a run is taken up."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class AttemptPast:
    """An attempt that was at least meant. No handle: it is not known whether the target heard of it."""

    number: int
    target: str
    handle: str | None = None
    host: str = ""  # of the process that meant it
    judged: bool = False
    removed: bool = False


@dataclass
class Past:
    """Attempts by cell hash, in order; `skipped` cells with their reason."""

    attempts: dict[str, list[AttemptPast]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False
    started_s: float | None = None


def read_past(entries: list[dict[str, Any]]) -> Past:
    past = Past()
    for entry in entries:
        event = entry["event"]
        if event == "run":
            past.started_s = entry["wall_s"]
        elif event == "submit":
            attempts = past.attempts.setdefault(entry["cell"], [])
            attempts.append(AttemptPast(entry["attempt"], entry["target"], host=entry.get("host", "")))
        elif event in ("submitted", "judged", "removed"):
            attempt = past.attempts[entry["cell"]][-1]
            attempt.handle = entry.get("handle", attempt.handle)
            attempt.judged |= event == "judged"
            attempt.removed |= event == "removed"
        elif event == "skipped":
            past.skipped[entry["cell"]] = entry["why"]
        elif event == "interrupted":
            past.interrupted = True
    return past
