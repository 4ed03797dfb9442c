"""Reads and writes case files."""

from seatrial.kinds.serving.cases.read import CaseFile, Dialect, cases_of, read_case_file, read_cases
from seatrial.kinds.serving.cases.write import recorded, recorded_answers
