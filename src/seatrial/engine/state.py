"""The states of the parts of an attempt, and how the journal of a run is read back into them.

The journal of an attempt is nothing but its parts' transitions, each with `cell`, `attempt` and `part`:

    meant      host, parts: {name: target}   one line for all parts; each has its `job.json` in the attempt's folder
    submitted  handle
    started
    ready
    ended      exit                          how it ended; a part that was never submitted ends too
    collected                                its `observation.json` is in the attempt's folder
    removed

and what is no transition: `stopping` (exit: why we end a part, before it is told to end), `left` (why it could not be
removed), `judged` (verdict, why) and `broken` (why, traceback: a bug of ours; nothing more is done for the attempt).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from seatrial.job import Exit
from seatrial.record import JournalError

VERSION = 2


class State(StrEnum):
    MEANT = "meant"
    SUBMITTED = "submitted"
    STARTED = "started"
    READY = "ready"
    ENDED = "ended"
    COLLECTED = "collected"
    REMOVED = "removed"

    def reached(self, other: "State") -> bool:
        return _ORDER[self] >= _ORDER[other]


_ORDER = {state: number for number, state in enumerate(State)}


@dataclass
class PartRecord:
    """What the journal says of one part."""

    target: str
    state: State = State.MEANT
    handle: str | None = None
    stopping: Exit | None = None
    exit: Exit | None = None


@dataclass
class AttemptRecord:
    number: int
    host: str  # of the process that meant it
    parts: dict[str, PartRecord]
    broken: str = ""
    traceback: str = ""

    @property
    def over(self) -> bool:
        return bool(self.broken) or all(part.state.reached(State.COLLECTED) for part in self.parts.values())


@dataclass
class RunRecord:
    """Attempts by cell hash, in order; `skipped` cells with their reason."""

    attempts: dict[str, list[AttemptRecord]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False
    started_s: float | None = None


def read_run(entries: Iterable[dict[str, Any]], run: RunRecord | None = None) -> RunRecord:
    """What the journal says; with `run`, that takes the entries that came since it was read.

    Raises JournalError for the journal of a version with another form."""
    run = RunRecord() if run is None else run
    for entry in entries:
        event = entry["event"]
        if event == "run":
            if entry.get("version") != VERSION:
                raise JournalError(
                    f"this run was begun by Seatrial {entry.get('seatrial')}, and its journal has another form: "
                    "only that version can finish it"
                )
            run.started_s = entry["wall_s"]
        elif event == "meant":
            parts = {name: PartRecord(target) for name, target in entry["parts"].items()}
            run.attempts.setdefault(entry["cell"], []).append(AttemptRecord(entry["attempt"], entry["host"], parts))
        elif event == "skipped":
            run.skipped[entry["cell"]] = entry["why"]
        elif event == "interrupted":
            run.interrupted = True
        elif event == "broken":
            attempts = run.attempts.setdefault(entry["cell"], [])
            if not attempts or attempts[-1].number != entry["attempt"]:  # broken before it was meant
                attempts.append(AttemptRecord(entry["attempt"], "", {}))
            attempts[-1].broken, attempts[-1].traceback = entry["why"], entry["traceback"]
        elif event == "stopping":
            _part(run, entry).stopping = msgspec.convert(entry["exit"], Exit)
        elif event in _ORDER:
            part = _part(run, entry)
            part.state = State(event)
            part.handle = entry.get("handle", part.handle)
            part.exit = msgspec.convert(entry["exit"], Exit) if "exit" in entry else part.exit
    return run


def _part(run: RunRecord, entry: dict[str, Any]) -> PartRecord:
    attempts = run.attempts[entry["cell"]]
    # Mostly the last; but what an earlier one could not remove is removed by a later process.
    return next(one for one in reversed(attempts) if one.number == entry["attempt"]).parts[entry["part"]]
