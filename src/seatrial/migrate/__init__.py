"""What the readers of other tools' files have in common: the suite that they make, and who is to blame for it."""

import re
from collections.abc import Container

import msgspec

from seatrial.suite.names import NAME
from seatrial.suite.yaml.problem import Problem, SourceMark, SuiteError


class Imported(msgspec.Struct, frozen=True):
    text: str
    trials: dict[str, int]  # name -> the line of what it is made from
    unknown: tuple[str, ...]  # what the file does not say, and somebody has to


def blamed(error: SuiteError, made: Imported, file: str) -> SuiteError:
    """What is wrong with the suite that was made, reported at the lines of the file that it was made from."""
    problems = []
    for problem in error.problems:
        names = [name for name in made.trials if f"{problem.path}.".startswith(f"trials.{name}.")]
        line = made.trials[max(names, key=len)] if names else 1
        reason = f"no suite can be made from this: {problem.message} ({problem.path or 'the whole of it'})"
        problems.append(Problem(reason, SourceMark(file, line, 1)))
    return SuiteError(problems)


def literal(text: str) -> str:
    """`${name}` in a suite is an axis; what only looks like one is written with two $."""
    return re.sub(r"\$(?=\{)", "$$", text)


def unique_name(text: str, names: Container[str], otherwise: str) -> str:
    """A name for an entry of a suite that none of `names` is."""
    name = text if NAME.fullmatch(text) else re.sub(r"[^A-Za-z0-9_.+-]", "-", text)[:60].lstrip(".+-")
    name = name or otherwise
    count, made = 2, name
    while made in names:
        made, count = f"{name}-{count}", count + 1
    return made


def suite_name(text: str, otherwise: str) -> str:
    return re.sub(r"[^\w. +-]", "-", text).strip("-. +")[:100] or otherwise
