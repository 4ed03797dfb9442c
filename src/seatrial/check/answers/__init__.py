"""Answers of a model server against what is expected of them."""

from seatrial.check.answers.comparison import Agreement, Comparison
from seatrial.check.answers.judge import judge_answers

__all__ = ["Agreement", "Comparison", "judge_answers"]
