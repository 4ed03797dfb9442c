"""Regular expressions of a suite: their errors, and the form in which the agent gets them."""

import importlib
import re
from collections.abc import Iterable
from typing import Any, TypedDict

from seatrial.suite.placeholders import IN_PATTERN


def problem(pattern: str, group: bool = False) -> str:
    """Returns the error in a user's pattern, "" if there is none. `group`: the pattern needs a group."""
    plain = IN_PATTERN.sub("x", pattern)
    try:
        groups = re.compile(plain).groups
    except (re.error, OverflowError, RecursionError) as error:
        return f"invalid regular expression {pattern!r}: {error}"
    if not pattern:
        return "empty pattern, which matches every line; use the text to look for"
    if group and not groups:
        return f"{pattern!r} has no group; put ( ) around the number to read: 'loss: (\\S+)'"
    return ""


class AgentPattern(TypedDict, total=False):
    """A pattern in the agent's form."""

    pattern: str
    literal: str  # a text that every match contains
    across: bool  # an expression for several lines, which is searched in the kept output
    ends: bool  # whether a match stops the command


def for_agent(pattern: str) -> AgentPattern:
    return {"pattern": pattern, "literal": longest_literal(pattern)}


def follow_texts(
    contains: Iterable[str], matches: Iterable[str], never: Iterable[str]
) -> dict[str, list[AgentPattern]]:
    """The patterns that the agent looks for in a command's output without stopping it; empty if there are none."""
    must = [*map(_text, contains), *map(_searched, matches)]
    unwanted: list[AgentPattern] = [{**_text(text), "ends": False} for text in never]
    return {"must": must, "never": unwanted} if must or unwanted else {}


def _text(text: str) -> AgentPattern:
    return {"pattern": re.escape(text), "literal": text}


# What can match a line break, or the start or end of the whole text. Where it is not certain, it counts too.
_ACROSS = re.compile(r"[\x00-\x08\n-\r]|\\(?:[nrsWDAZ0N]|1[0-5]|x0|u000|U000000|[abftv]-)|\t-|\[\^|\(\?[a-zA-Z]*s")


def _searched(pattern: str) -> AgentPattern:
    """The agent matches lines as bytes, so a non-ASCII pattern is searched in the kept output, which is text."""
    across = not pattern.isascii() or _ACROSS.search(pattern)
    return {**for_agent(pattern), "across": True} if across else for_agent(pattern)


def longest_literal(pattern: str) -> str:
    """The longest text that every match contains; the agent searches it first, because that is fast.

    Empty if none is found, which is always correct."""
    parser: Any = importlib.import_module("re._parser")
    try:
        parsed = parser.parse(pattern)
    except (re.error, OverflowError, RecursionError):  # a cell's values made it invalid; the agent reports that
        return ""
    if parsed.state.flags & re.IGNORECASE:
        return ""
    runs = [""]
    _collect(parsed, runs)
    best = max(runs, key=len)
    return "" if "\n" in best or "\r" in best else best


def _collect(parsed: Any, runs: list[str]) -> None:
    """Extends the last run with the literals that follow, and starts a new run after anything variable."""
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
            runs.append("")  # it may repeat
        elif name not in ("AT", "ASSERT", "ASSERT_NOT"):  # zero width
            runs.append("")
