"""Answers of a model server against what is expected of them."""

from seatrial.check.answers.comparison import Agreement, Comparison
from seatrial.check.answers.findings import Answered, case_step, check_answers
from seatrial.check.answers.judge import judge_answers
from seatrial.check.answers.rules import LEAST_SIMILARITY, AnswerRule, Comparing
from seatrial.check.answers.tolerance import TOLERANCES, Tolerance, tolerance_for
