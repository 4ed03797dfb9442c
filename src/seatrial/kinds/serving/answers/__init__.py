"""Compares the answers of a model server with the expected ones."""

from seatrial.kinds.serving.answers.compare import TOLERANCES, Agreement, Comparison, Tolerance, tolerance_for
from seatrial.kinds.serving.answers.findings import Answered, case_step, check_answers, judge_answers, with_reason
from seatrial.kinds.serving.answers.judge import LEAST_SIMILARITY, AnswerRule, Comparing
