"""Regular expressions of a training trial: the ones that it has without being told, and what the agent gets of each."""

import importlib
import re
from typing import Any

from seatrial.suite import Cell, fill

# Nothing here needs a newer `re` than that of Python 3.8. Each begins with a literal and then looks back at what is
# before it: `re` finds a literal twenty times as quickly as anything else.
_NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d*)?|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
    r"|(?:[nN]a[nN]|NAN|[iI]nf(?:inity)?|INF(?:INITY)?)\b)"
)
_OTHERS = ("[vV]al", "[vV]alidation", "[eE]val", "[tT]est", "[dD]ev", "[bB]est")  # losses that are another one
_NOT_THEM = "".join(rf"(?<!{word} [lL]oss)" for word in _OTHERS)
_LOSS = rf"oss(?<=[lL]oss)(?<![\w/.-][lL]oss)(?:(?<![lntv] [lL]oss)|{_NOT_THEM})"  # they end in one of four letters
_STEP = r"""tep(?=['" :=#\d])(?<=[sS]tep)(?:(?<![\w/.-][sS]tep)|(?<=global_[sS]tep))"""  # not multi-step, my_step
_STEP_TIME = r"tep[ _]time(?<=[sS]tep.time)(?<![\w/.-][sS]tep.time)"

# What may be around a number, behind `:` or `=`: quotes, a list, a number of torch, JAX or NumPy. No digit is in it,
# for the agent counts quickly only with a pattern to which every digit is like any other.
_AROUND = r"(?:tensor|[aA]rray|np\.float\d+)\("
LOSS = rf"{_LOSS}['\"]?(?:\s*[:=]\s*['\"\[(]*|\s+)(?:{_AROUND}\[*)?({_NUMBER})"
STEP = rf"{_STEP}['\"]?\s*[:=#]?\s*(\d+)(?![\d.])"
STEP_TIME_PATTERN = rf"{_STEP_TIME}['\"]?\s*[:=]\s*({_NUMBER})(?![\d.eE+-]|\s*(?:ms|us|µs|ns|min))"


def problem(pattern: str, group: bool = False) -> str:
    """What is wrong with a pattern that a user wrote, in words; `group`: it is read, so it needs a group."""
    plain = _PLACEHOLDER.sub("x", pattern)
    try:
        groups = re.compile(plain).groups
    except (re.error, OverflowError, RecursionError) as error:
        return f"{pattern!r} is not a regular expression: {error}"
    if not pattern:
        return "an empty pattern matches every line; write the text to look for"
    if group and not groups:
        return f"{pattern!r} has no group: put ( ) around the number that is to be read, as in 'loss: (\\S+)'"
    return ""


_PLACEHOLDER = re.compile(r"(?<!\$)\$\{[^}]*\}")


def fill_pattern(pattern: str, cell: Cell) -> str:
    """The pattern with the cell's values in it; they stand for themselves, whatever they would mean as a pattern."""
    text: str = fill(pattern, {axis: re.escape(label) for axis, label in cell.axes.items()}, _escaped(cell.values))
    return text


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return re.escape(value) if isinstance(value, str) else value


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
