"""Runs plans: limits, retries, cancellation, journal, attach and reap."""

from seatrial.engine.logs import LogPiece, LogSource, RunLogs
from seatrial.engine.prepare import PreparedRun, commit_of, create, reopen
from seatrial.engine.reap import Reaped, Reaping, reap
from seatrial.engine.run import Listener, Run, RunStopped, thread_limit
from seatrial.engine.verify import RunRefused
from seatrial.job.plan import RunOptions
