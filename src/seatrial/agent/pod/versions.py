"""Small comparisons of versions, as far as the standard library goes: of a Python, and of installed packages."""

from __future__ import annotations

import re
from typing import Callable, Dict, List, Tuple

Numbers = Tuple[int, ...]

_PLAIN = re.compile(r"\d+(\.\d+)*")
_CLAUSE = re.compile(r"(~=|===?|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?")
_COMPARED: Dict[str, Callable[[Numbers, Numbers], bool]] = {
    "<": lambda have, want: have < want,
    "<=": lambda have, want: have <= want,
    ">": lambda have, want: have > want,
    ">=": lambda have, want: have >= want,
}


def allows(specifier: str, have: Numbers) -> bool:
    """Whether a Python of version `have` is what `specifier` asks for: "3.11" is any 3.11, else as in PEP 440.
    Raises ValueError for what is neither."""
    specifier = specifier.strip()
    if _PLAIN.fullmatch(specifier):
        return _starts(have, _numbers(specifier))
    clauses = [_CLAUSE.fullmatch(clause.strip()) for clause in specifier.split(",")]
    if not all(clauses):
        raise ValueError(specifier)
    return all(_holds(found.group(1), found.group(2), bool(found.group(3)), have) for found in clauses if found)


def _holds(operator: str, text: str, any_behind: bool, have: Numbers) -> bool:
    want = _numbers(text)
    if any_behind and operator not in ("==", "!="):
        raise ValueError("%s%s.*" % (operator, text))
    if operator == "~=":
        if len(want) < 2:
            raise ValueError(operator + text)
        return _same_length(have, want, lambda a, b: a >= b) and _starts(have, want[:-1])
    if operator in ("==", "===", "!="):
        same = _starts(have, want) if any_behind else _same_length(have, want, lambda a, b: a == b)
        return same if operator != "!=" else not same
    return _same_length(have, want, _COMPARED[operator])


def _same_length(have: Numbers, want: Numbers, compare: Callable[[Numbers, Numbers], bool]) -> bool:
    """3.11 is 3.11.0."""
    longest = max(len(have), len(want))
    return compare(have + (0,) * (longest - len(have)), want + (0,) * (longest - len(want)))


def _starts(have: Numbers, want: Numbers) -> bool:
    return have[: len(want)] == want


def _numbers(text: str) -> Numbers:
    return tuple(map(int, text.split(".")))


# Asked of the interpreter whose packages they are, by `python -c`: exits with 0 when it is sure that all of the
# requirements are there already. Only names alone and `==` are looked at; for more, an installer is asked.
SATISFIED = """
import re, sys
from importlib.metadata import PackageNotFoundError, version
for wanted in sys.argv[1:]:
    found = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)\\s*(?:==\\s*([0-9][A-Za-z0-9.+!]*?)(\\.\\*)?)?", wanted.strip())
    try:
        have = version(found.group(1)) if found else None
    except PackageNotFoundError:
        have = None
    if have is None:
        sys.exit(1)
    exact = found.group(2)
    if exact and not (have == exact or found.group(3) and have.startswith(exact + ".")):
        sys.exit(1)
"""


def requirement(text: str) -> str:
    """`text`, where an installer would take it as one package and as nothing else. Raises ValueError."""
    if not text.strip() or text.lstrip().startswith("-") or any(sign in text for sign in "\n\r\0"):
        raise ValueError(text)
    return text.strip()


def names(packages: List[str]) -> str:
    return (
        ", ".join(packages) if len(packages) <= 5 else "%s and %d more" % (", ".join(packages[:4]), len(packages) - 4)
    )
