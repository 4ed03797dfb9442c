"""The runs of a folder, each in a few words: what it came to, or how far it is and who works on it."""

from enum import StrEnum
from pathlib import Path

import msgspec

from seatrial.job import Unreadable, read_json
from seatrial.record.folder import DamagedRun, RunFolder
from seatrial.record.journal import JournalError, read_journal
from seatrial.record.owner import Owner, owner_of


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


class _Plan(msgspec.Struct):
    cells: list[msgspec.Raw]


def run_overviews(runs: Path, last: int) -> tuple[list[RunOverview], int]:
    """The newest first, at most `last`; and how many there are in all."""
    plans = sorted(runs.glob("*/plan.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    return [run_overview(RunFolder(path.parent)) for path in plans[:last]], len(plans)


def run_overview(folder: RunFolder) -> RunOverview:
    began_s = folder.plan.stat().st_mtime
    try:
        cells = len(folder.read_plan(_Plan).cells)
    except DamagedRun as error:
        return RunOverview(folder.run, RunState.DAMAGED, began_s, 0, 0, why=str(error))
    owner = owner_of(folder.path)
    owned = owner is not None and owner.works_on(folder.path)
    if owned or not folder.results.exists():
        try:
            done = _done(folder)
        except JournalError as error:
            return RunOverview(folder.run, RunState.DAMAGED, began_s, cells, 0, why=str(error))
        state = RunState.RUNNING if owned else RunState.UNFINISHED
        return RunOverview(folder.run, state, began_s, cells, done, owner=owner if owned else None)
    try:
        found = read_json(folder.results, _Results)
    except (OSError, Unreadable) as error:
        return RunOverview(folder.run, RunState.DAMAGED, began_s, cells, 0, why=f"results.json: {error}")
    finished = RunState.FINISHED
    return RunOverview(
        folder.run, finished, found.started_s, cells, len(found.cells), found.verdict, found.seconds, found.counts
    )


def _done(folder: RunFolder) -> int:
    """Raises JournalError."""
    entries, _ = read_journal(folder.journal) if folder.journal.exists() else ([], 0)
    return len({entry.get("cell") for entry in entries if entry["event"] in ("judged", "skipped")})
