"""Answers of a model server against what is expected of them."""

from seatrial.kinds.serving.answers.compare import TOLERANCES, Agreement, Comparison, Tolerance, tolerance_for
from seatrial.kinds.serving.answers.findings import Answered, case_step, check_answers, judge_answers
from seatrial.kinds.serving.answers.rules import LEAST_SIMILARITY, AnswerRule, Comparing
