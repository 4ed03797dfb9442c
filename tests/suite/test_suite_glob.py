"""Globs of names: one form everywhere."""

import pytest

from seatrial.suite import glob_matches


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("t[a=1,b=2]", "t[a=1,b=2]", True),
        ("t[a=*,b=2]", "t[a=1,b=2]", True),
        ("t[ab]", "ta", False),
        ("?100", "A100", True),
        ("?100", "AA100", False),
        ("*", "", True),
        ("run *", "run echo\nagain", True),
        ("a.c", "abc", False),
        ("A*", "a100", False),
    ],
)
def test_star_and_question_mark_have_a_meaning_and_nothing_else_has(pattern: str, name: str, fits: bool) -> None:
    assert glob_matches(pattern, name) is fits
