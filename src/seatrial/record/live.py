"""The live file of a run: each change of a cell as a line, for any process that wants to watch.

1. It is for people: nothing is taken up from it, and a run goes on when it cannot be written.
2. It stays small: from time to time it is written anew with what is known of each cell, and a reader begins again.
3. Reading it twice changes nothing: a change says what a cell is, not what happened to it since.
"""

import contextlib
import os
import time
from enum import StrEnum
from pathlib import Path

import msgspec

from seatrial.job import Unreadable, decode, read_json
from seatrial.record.folder import DamagedRun, RecordError, RunFolder, write_whole
from seatrial.record.journal import read_journal
from seatrial.record.owner import Owner, owner_of

LIVE = "live.jsonl"
_MOST_BYTES = 4 << 20  # between two times that it is written anew


class LiveChange(msgspec.Struct, frozen=True, array_like=True):
    """`cell` is an id, or empty for what concerns the whole run."""

    at_s: float  # wall time
    cell: str
    state: str
    progress: str = ""


class LiveWriter:
    """Of the process that works on the run. One that takes it up begins anew, with its first change."""

    def __init__(self, folder: Path, most_bytes: int = _MOST_BYTES) -> None:
        self._path = folder / LIVE
        self._most = most_bytes
        # By cell: when it started and began to run, and its last change.
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
        with contextlib.suppress(OSError):  # a full disk, a folder that is gone
            if self._file is None or self._bytes > self._most:
                self._rewrite()
            else:
                self._bytes += os.write(self._file, _line(change))

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _rewrite(self) -> None:
        self.close()
        self._bytes = 0
        changes = sorted((change for of in self._known.values() for change in of.values()), key=lambda one: one.at_s)
        write_whole(self._path, b"".join(map(_line, dict.fromkeys(changes))), sync=False)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)


def _line(change: LiveChange) -> bytes:
    return msgspec.json.encode(change) + b"\n"


class LiveReader:
    """`changes` gives what is new since the last call; all that is known when the file was written anew."""

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
            with contextlib.suppress(Unreadable):  # of a disk that was full
                found.append(decode(line, LiveChange))
        return found


# The runs of a folder, each in a few words: what it came to, or how far it is and who works on it.


class RunState(StrEnum):
    FINISHED = "finished"
    RUNNING = "running"  # somebody works on it
    UNFINISHED = "unfinished"  # nobody does: `attach` finishes it
    DAMAGED = "damaged"


class RunOverview(msgspec.Struct, frozen=True):
    run: str
    state: RunState
    started_s: float  # wall time
    cells: int
    done: int  # cells that came to a verdict
    verdict: str = ""  # of one that is finished
    seconds: float | None = None
    counts: dict[str, int] = {}
    owner: Owner | None = None  # who works on it
    why: str = ""  # of one that is damaged


class _Results(msgspec.Struct):
    """What is read of `results.json` here; the rest of it may be large."""

    verdict: str
    cells: list[msgspec.Raw]
    started_s: float = 0.0
    seconds: float = 0.0
    counts: dict[str, int] = {}


def run_overviews(runs: Path, last: int) -> tuple[list[RunOverview], int]:
    """The newest first, at most `last`; and how many there are in all."""
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
            done = len({entry.get("cell") for entry in entries if entry["event"] in ("judged", "skipped")})
            state = RunState.RUNNING if owned else RunState.UNFINISHED
            return RunOverview(folder.run, state, began_s, cells, done, owner=owner if owned else None)
    except (DamagedRun, RecordError) as error:
        return RunOverview(folder.run, RunState.DAMAGED, began_s, cells, 0, why=str(error))
    try:
        found = read_json(folder.results, _Results)
    except (OSError, Unreadable) as error:
        return RunOverview(folder.run, RunState.DAMAGED, began_s, cells, 0, why=f"results.json: {error}")
    came_to = len(found.cells), found.verdict, found.seconds, found.counts
    return RunOverview(folder.run, RunState.FINISHED, found.started_s, cells, *came_to)
