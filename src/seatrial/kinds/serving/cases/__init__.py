"""Case files: read into the neutral request and answer, and written back."""

from seatrial.kinds.serving.cases.read import CaseFile, Dialect, cases_of, read_case_file, read_cases
from seatrial.kinds.serving.cases.write import recorded, recorded_answers
