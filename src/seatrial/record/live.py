"""The live file of a run: one line per change of a cell, for other processes that watch. Overviews of runs.

1. It is only for display: `attach` does not read it, and the run continues if it cannot be written.
2. It stays small: it is rewritten from time to time with the state of each cell, and readers start over.
3. Lines are idempotent: each has the state of a cell, not a difference.
"""

import contextlib
import os
import time
from enum import StrEnum
from pathlib import Path

import msgspec

from seatrial.job import Unreadable, decode, read_json
from seatrial.record.folder import DamagedRun, Owner, RecordError, RunFolder, owner_of, write_whole
from seatrial.record.journal import read_journal

LIVE = "live.jsonl"
_MOST_BYTES = 4 << 20  # between rewrites


class LiveChange(msgspec.Struct, frozen=True, array_like=True):
    """`cell` is an id, or empty for the whole run."""

    at_s: float  # wall time
    cell: str
    state: str
    progress: str = ""


class LiveWriter:
    """Writes the live file, in the process that owns the run. A process that resumes the run rewrites the file."""

    def __init__(self, folder: Path, most_bytes: int = _MOST_BYTES) -> None:
        self._path = folder / LIVE
        self._most = most_bytes
        # By cell: the changes to `starting` and `running`, and the last one.
        self._known: dict[str, dict[str, LiveChange]] = {}
        self._file: int | None = None
        self._bytes = 0

    def update(self, cell: str, state: str, progress: str = "") -> None:
        change = LiveChange(time.time(), cell, state, progress)
        known = self._known.setdefault(cell, {})
        if state == "starting":
            known.clear()
        if state in ("starting", "running"):
            known.setdefault(state, change)
        known["last"] = change
        with contextlib.suppress(OSError):  # full disk, deleted folder
            if self._file is not None and self._bytes <= self._most:
                self._bytes += os.write(self._file, _line(change))
                return
            self.close()
            self._bytes = 0
            changes = sorted((one for of in self._known.values() for one in of.values()), key=lambda one: one.at_s)
            write_whole(self._path, b"".join(map(_line, dict.fromkeys(changes))), sync=False)
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _line(change: LiveChange) -> bytes:
    return msgspec.json.encode(change) + b"\n"


class LiveReader:
    """`changes` returns the changes since the last call, or all of them if the file was rewritten."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LIVE
        self._inode = 0
        self._offset = 0

    def changes(self) -> list[LiveChange]:
        try:
            with open(self._path, "rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode or os.fstat(file.fileno()).st_size < self._offset:
                    self._inode, self._offset = inode, 0
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        found = []
        for line in whole.splitlines():
            with contextlib.suppress(Unreadable):  # cut off by a full disk
                found.append(decode(line, LiveChange))
        return found


# Overviews of runs: result, or progress and owner.


class RunState(StrEnum):
    FINISHED = "finished"
    RUNNING = "running"  # a process owns it
    UNFINISHED = "unfinished"  # no owner; `attach` resumes it
    DAMAGED = "damaged"


class RunOverview(msgspec.Struct, frozen=True):
    run: str
    state: RunState
    started_s: float  # wall time
    cells: int
    done: int  # cells with a verdict
    verdict: str = ""  # if finished
    seconds: float | None = None
    counts: dict[str, int] = {}
    owner: Owner | None = None  # if running
    why: str = ""  # if damaged


class _Results(msgspec.Struct):
    """The fields of `results.json` needed here; the rest may be large."""

    verdict: str
    cells: list[msgspec.Raw]
    started_s: float = 0.0
    seconds: float = 0.0
    counts: dict[str, int] = {}


def run_overviews(runs: Path, last: int) -> tuple[list[RunOverview], int]:
    """The newest `last` runs, newest first, and the total number."""
    plans = sorted(runs.glob("*/plan.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    return [run_overview(RunFolder(path.parent)) for path in plans[:last]], len(plans)


def run_overview(folder: RunFolder) -> RunOverview:
    began_s, cells = folder.plan.stat().st_mtime, 0
    owner = owner_of(folder.path)
    owned = owner is not None and owner.works_on(folder.path)
    try:
        cells = len(folder.read_plan().cells)
        if owned or not folder.results.exists():
            entries, _ = read_journal(folder.journal) if folder.journal.exists() else ([], 0)
            over = (one for one in entries if one["event"] in ("judged", "skipped") and not one.get("again"))
            done = len({entry.get("cell") for entry in over})
            state = RunState.RUNNING if owned else RunState.UNFINISHED
            return RunOverview(folder.run, state, began_s, cells, done, owner=owner if owned else None)
    except (DamagedRun, RecordError) as error:
        return RunOverview(folder.run, RunState.DAMAGED, began_s, cells, 0, why=str(error))
    try:
        found = read_json(folder.results, _Results)
    except (OSError, Unreadable) as error:
        return RunOverview(folder.run, RunState.DAMAGED, began_s, cells, 0, why=f"results.json: {error}")
    outcome = len(found.cells), found.verdict, found.seconds, found.counts
    return RunOverview(folder.run, RunState.FINISHED, found.started_s, cells, *outcome)
