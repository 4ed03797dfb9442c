"""The run folder, its journal and owner, and the history of past results."""

from seatrial.record.folder import (
    DamagedRun,
    Owner,
    Ownership,
    RecordError,
    RunFolder,
    RunOwned,
    UnknownRun,
    find_run,
    is_owned,
    owner_of,
    write_whole,
)
from seatrial.record.journal import Journal, read_journal
from seatrial.record.live import LiveReader, LiveWriter, RunOverview, RunState, run_overview, run_overviews
