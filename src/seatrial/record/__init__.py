"""The run folder, its journal and owner, and the history of past results."""

from seatrial.record.folder import DamagedFile, DamagedRun, RunFolder, UnknownRun, find_run, write_whole
from seatrial.record.journal import Journal, JournalError, read_journal
from seatrial.record.owner import Owned, Owner, Ownership, owner_of

__all__ = [
    "DamagedFile",
    "DamagedRun",
    "Journal",
    "JournalError",
    "Owned",
    "Owner",
    "Ownership",
    "RunFolder",
    "UnknownRun",
    "find_run",
    "owner_of",
    "read_journal",
    "write_whole",
]
