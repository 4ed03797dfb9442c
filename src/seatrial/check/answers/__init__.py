"""Answers of a model server against what is expected of them."""

from seatrial.check.answers.comparison import Agreement, Comparison
from seatrial.check.answers.findings import Answered, case_step, check_answers
from seatrial.check.answers.judge import judge_answers
from seatrial.check.answers.rules import Comparing, Rule, cosine
from seatrial.check.answers.tolerance import TOLERANCES, Tolerance, tolerance_for

__all__ = [
    "TOLERANCES",
    "Agreement",
    "Answered",
    "Comparing",
    "Comparison",
    "Rule",
    "Tolerance",
    "case_step",
    "check_answers",
    "cosine",
    "judge_answers",
    "tolerance_for",
]
