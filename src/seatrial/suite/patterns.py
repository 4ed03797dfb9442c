"""Regular expressions of a training trial: the ones that it has without being told, and what the agent gets of each."""

import importlib
import re
from typing import Any

from seatrial.suite.placeholders import IN_PATTERN


def problem(pattern: str, group: bool = False) -> str:
    """What is wrong with a pattern that a user wrote, in words; `group`: it is read, so it needs a group."""
    plain = IN_PATTERN.sub("x", pattern)
    try:
        groups = re.compile(plain).groups
    except (re.error, OverflowError, RecursionError) as error:
        return f"{pattern!r} is not a regular expression: {error}"
    if not pattern:
        return "an empty pattern matches every line; write the text to look for"
    if group and not groups:
        return f"{pattern!r} has no group: put ( ) around the number that is to be read, as in 'loss: (\\S+)'"
    return ""


def for_agent(pattern: str) -> dict[str, str]:
    """A pattern as the agent takes it."""
    return {"pattern": pattern, "literal": longest_literal(pattern)}


def longest_literal(pattern: str) -> str:
    """The longest text that every match of the pattern contains; the agent looks for it first, which is quick.

    Empty where there is none to be had, which is always right."""
    parser: Any = importlib.import_module("re._parser")
    try:
        parsed = parser.parse(pattern)
    except (re.error, OverflowError, RecursionError):
        return ""
    if parsed.state.flags & re.IGNORECASE:
        return ""
    runs = [""]
    _collect(parsed, runs)
    best = max(runs, key=len)
    return "" if "\n" in best or "\r" in best else best


def _collect(parsed: Any, runs: list[str]) -> None:
    """Add to the last run what follows it without a gap, and begin a new run behind whatever may be different."""
    for operation, argument in parsed:
        name = str(operation)
        if name == "LITERAL":
            runs[-1] += chr(argument)
        elif name == "SUBPATTERN" and not argument[1] & re.IGNORECASE:
            _collect(argument[3], runs)
        elif name == "ATOMIC_GROUP":
            _collect(argument, runs)
        elif name.endswith("_REPEAT") and argument[0] >= 1:
            _collect(argument[2], runs)
            runs.append("")  # then perhaps once more
        elif name not in ("AT", "ASSERT", "ASSERT_NOT"):  # those take no room
            runs.append("")
