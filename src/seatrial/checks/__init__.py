"""Checks: pure functions from an observation to findings, one module per kind of step."""

from seatrial.checks.bounds import UNJUDGED, check_bounds
from seatrial.checks.causes import find_causes, headline
from seatrial.checks.command import check_run, check_workspace
from seatrial.checks.ended import MODEL, UNREAD, check_gpu_model, check_job, check_kept, ended_badly
from seatrial.checks.evidence import find_error, with_log_error
from seatrial.checks.findings import apply_xfails
