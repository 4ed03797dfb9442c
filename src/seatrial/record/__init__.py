"""The run folder, its journal and owner, and the history of past results."""

from seatrial.record.folder import DamagedRun, RecordError, RunFolder, UnknownRun, find_run, write_whole
from seatrial.record.journal import Journal, read_journal
from seatrial.record.live import LiveReader, LiveWriter, RunOverview, RunState, run_overview, run_overviews
from seatrial.record.owner import Owner, Ownership, RunOwned, owner_of
