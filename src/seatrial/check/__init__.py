"""From what was seen to findings: pure functions, one module for each sort of step."""

from seatrial.check.answers import judge_answers
from seatrial.check.bounds import UNJUDGED, check_bounds
from seatrial.check.causes import find_causes, headline
from seatrial.check.ended import check_job, check_kept, ended_badly
from seatrial.check.evidence import find_error, with_log_error
from seatrial.check.facts import Declared, check_facts
from seatrial.check.notebook import check_notebook
from seatrial.check.step import RunExpected, check_command, check_import, check_run, check_workspace
from seatrial.check.xfail import apply_xfails
