"""The states of the parts of an attempt, and reading them back from a run's journal.

The journal of an attempt consists of its parts' transitions, each with `cell`, `attempt` and `part`:

    planned    host, parts: {name: target}   one line for all parts; each has its `job.json` in the attempt's folder
    submitted  handle
    started
    ready
    ended      exit                          how it ended; a part that was never submitted ends too
    collected                                its `observation.json` is in the attempt's folder
    removed

Other events of an attempt are `stopping` (exit: why we stop a part, written before it is stopped), `left` (why it could
not be removed), `judged` (verdict, why, seconds: billed time) and `broken` (why, traceback: an internal error; nothing
more is done for the attempt). Each process begins with `run` or `attached` (boot: since when `at_s` counts).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from seatrial.job import Exit, Unreadable, convert
from seatrial.record import RecordError

JOURNAL_VERSION = 3


class State(StrEnum):
    PLANNED = "planned"
    SUBMITTED = "submitted"
    STARTED = "started"
    READY = "ready"
    ENDED = "ended"
    COLLECTED = "collected"
    REMOVED = "removed"

    def reached(self, other: "State") -> bool:
        return _ORDER[self] >= _ORDER[other]


def job_seconds(at_s: dict[State, float]) -> float:
    """Seconds from a part's submission to its end; 0 if it was never submitted."""
    ended_s = at_s.get(State.ENDED, 0.0)
    return max(0.0, ended_s - at_s.get(State.SUBMITTED, ended_s))


_ORDER = {state: number for number, state in enumerate(State)}


@dataclass
class PartRecord:
    """The journal's record of one part."""

    target: str
    state: State = State.PLANNED
    handle: str | None = None
    stopping: Exit | None = None
    exit: Exit | None = None
    at_s: dict[State, float] = field(default_factory=dict)  # time of each transition, from the start of the run


@dataclass
class AttemptRecord:
    number: int
    host: str  # of the process that planned it
    parts: dict[str, PartRecord]
    broken: str = ""
    traceback: str = ""
    seconds: float | None = None  # billed time, once it is judged

    @property
    def job_seconds(self) -> float:
        return max((job_seconds(part.at_s) for part in self.parts.values()), default=0.0)

    @property
    def over(self) -> bool:
        return bool(self.broken) or all(part.state.reached(State.COLLECTED) for part in self.parts.values())


@dataclass
class RunRecord:
    """Attempts by cell hash, in order; `skipped` cells with their reason."""

    attempts: dict[str, list[AttemptRecord]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False
    started_s: float | None = None  # wall time
    seconds: float = 0.0  # from the start of the run to the last line, however the wall clock was set
    finished_s: float | None = None  # `seconds` when it finished
    last: "_Entry | None" = None
    boot: str = ""  # of the machine of the last process


class _Entry(msgspec.Struct, frozen=True):
    """A line of the journal, with the fields of all events."""

    event: str
    wall_s: float
    at_s: float = 0.0  # of the machine's monotonic clock
    boot: str = ""
    version: int = 0
    seatrial: str = ""
    cell: str = ""
    attempt: int = 0
    host: str = ""
    part: str = ""
    parts: dict[str, str] = {}
    handle: str | None = None
    exit: Exit | None = None
    why: str = ""
    traceback: str = ""
    seconds: float | None = None


def read_run(entries: Iterable[dict[str, Any]], run: RunRecord | None = None) -> RunRecord:
    """Reads journal entries into a record, or adds new ones to `run`.

    Raises RecordError for a journal of another version."""
    run = RunRecord() if run is None else run
    for entry in entries:
        try:
            _take(run, convert(entry, _Entry))
        except (Unreadable, LookupError) as error:
            line = entry.get("n", -1) + 1
            raise RecordError(f"line {line} of the journal contradicts earlier lines: {error}") from error
    return run


def _take(run: RunRecord, entry: _Entry) -> None:
    if run.last is not None:
        # The monotonic clock goes on from process to process until the machine reboots.
        same_clock = entry.event not in ("run", "attached") or (bool(entry.boot) and entry.boot == run.boot)
        passed_s = entry.at_s - run.last.at_s if same_clock else entry.wall_s - run.last.wall_s
        run.seconds += max(0.0, passed_s)
    run.last, run.boot = entry, entry.boot or run.boot
    match entry.event:
        case "run":
            if entry.version != JOURNAL_VERSION:
                journal = f"journal version {entry.version}, expected {JOURNAL_VERSION}"
                by = f"run was started by Seatrial {entry.seatrial or '?'} ({journal})"
                raise RecordError(f"{by}; finish it with that version")
            run.started_s = entry.wall_s
        case "planned":
            parts = {name: PartRecord(target) for name, target in entry.parts.items()}
            run.attempts.setdefault(entry.cell, []).append(AttemptRecord(entry.attempt, entry.host, parts))
        case "skipped":
            run.skipped[entry.cell] = entry.why
        case "interrupted":
            run.interrupted = True
        case "finished":
            run.finished_s = run.seconds
        case "broken":
            attempts = run.attempts.setdefault(entry.cell, [])
            if not attempts or attempts[-1].number != entry.attempt:  # broken before it was planned
                attempts.append(AttemptRecord(entry.attempt, "", {}))
            attempts[-1].broken, attempts[-1].traceback = entry.why, entry.traceback
        case "stopping":
            _attempt(run, entry).parts[entry.part].stopping = entry.exit
        case "judged":
            _attempt(run, entry).seconds = entry.seconds
        case event if event in _ORDER:
            part = _attempt(run, entry).parts[entry.part]
            part.state = State(event)
            part.at_s.setdefault(part.state, run.seconds)
            part.handle = entry.handle or part.handle
            part.exit = entry.exit or part.exit


def _attempt(run: RunRecord, entry: _Entry) -> AttemptRecord:
    # Usually the last; but a later process may remove what an earlier attempt could not.
    for one in reversed(run.attempts[entry.cell]):
        if one.number == entry.attempt:
            return one
    raise LookupError(f"unknown attempt {entry.attempt} of {entry.cell}")
