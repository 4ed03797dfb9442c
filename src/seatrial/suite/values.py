"""Types of suite values: durations, sizes, requirements and texts; globs of names and notebooks."""

import glob
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from seatrial.job.units import DURATION_PATTERN, SIZE, SIZE_PATTERN, parse_duration, parse_size
from seatrial.suite.placeholders import Fill

Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": DURATION_PATTERN}]}
    ),
]
Size = Annotated[
    int, BeforeValidator(parse_size), WithJsonSchema({"type": "string", "pattern": SIZE_PATTERN, "examples": ["16Gi"]})
]
Money = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("text contains a NUL character")
    return text


def _reason(text: str) -> str:
    if not text.strip():
        raise ValueError("the reason is empty; the plan and report show it")
    return text


def _argument(text: str) -> str:
    if not text.strip() or text.startswith("-"):
        raise ValueError(f"{text!r} must not be empty or start with `-`")
    return text


def _variable(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise ValueError(f"invalid variable name {text!r}; use letters, digits and _, not starting with a digit")
    return text


Text = Annotated[str, Field(strict=True), AfterValidator(_no_nul)]
Reason = Annotated[Text, AfterValidator(_reason), Fill.NEVER]
Argument = Annotated[Text, AfterValidator(_argument)]
Variable = Annotated[Text, AfterValidator(_variable)]

_OPERATORS = (">=", "<=", "==", "!=", ">", "<")


class Requirement(msgspec.Struct, frozen=True):
    """`>=16Gi`, `A100`, `[A100, H100]`: an operator and its operands."""

    operator: str
    operands: tuple[str | float, ...]  # more than one only for "==": any of them
    text: str

    def met_by(self, have: str | float) -> bool:
        if self.operator in ("==", "!="):
            # Compare a number with a text capability as text.
            same = [f"{one:g}" if isinstance(have, str) and not isinstance(one, str) else one for one in self.operands]
            return (have in same) == (self.operator == "==")
        (want,) = self.operands
        if isinstance(have, str) or isinstance(want, str):
            return False
        return {">=": have >= want, "<=": have <= want, ">": have > want, "<": have < want}[self.operator]


def parse_requirement(value: Any) -> Requirement:
    if isinstance(value, Requirement):
        return value
    if isinstance(value, list):
        if not value or not all(isinstance(item, str | int | float) and not isinstance(item, bool) for item in value):
            raise ValueError("expected a list of names or numbers, at least one: [A100, H100]")
        return Requirement("==", tuple(map(_operand, value)), "one of " + ", ".join(map(str, value)))
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        raise ValueError(f'{value!r} is not a requirement; write ">=1", "<80Gi", a name, a number or a list of names')
    text = str(value).strip()
    if text[:2] in ("=>", "=<"):
        raise ValueError(f"invalid requirement {value!r}; did you mean '{text[1]}={text[2:].strip()}'?")
    operator = next((op for op in _OPERATORS if text.startswith(op)), "")
    operand = _operand(text[len(operator) :].strip()) if operator or isinstance(value, str) else float(value)
    if operand == "" or (operator in (">=", "<=", ">", "<") and isinstance(operand, str)):
        raise ValueError(f'invalid requirement {value!r}; use for example "{operator}1" or "{operator}16Gi"')
    return Requirement(operator or "==", (operand,), text)


def _operand(value: Any) -> str | float:
    if isinstance(value, int | float):
        return float(value)
    text = str(value)
    if SIZE.fullmatch(text):
        return float(parse_size(text))
    return float(text) if re.fullmatch(r"-?\d+(\.\d+)?", text) else text


Need = Annotated[
    Requirement,
    BeforeValidator(parse_requirement),
    PlainSerializer(lambda need: need.text, return_type=str),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": ["string", "number"]},
                {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1},
            ],
            "examples": [">=1", ">=16Gi", "A100"],
        }
    ),
]

# Globs of names (cells, axis values, tags, steps, metrics) and of notebooks in a folder.


def glob_matches(pattern: str, name: str) -> bool:
    """`*` is any text, `?` one character. Everything else is literal, also brackets: cell ids have them."""
    return _compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.compile("".join(parts), re.DOTALL)


def names_several(path: str) -> bool:
    """Whether a notebook path is a glob or a folder."""
    return "*" in path or "?" in path or not path.endswith(".ipynb")


def find_notebooks(folder: Path, path: str) -> list[str]:
    """The notebooks that `path` names in `folder`: a file, the matches of a glob (`**` crosses folders), or all
    notebooks in a folder and below it, without Jupyter's checkpoints."""
    there = folder / path
    if os.path.isfile(there):  # os.path, because pathlib raises for a name that is too long
        return [path]
    pattern = f"{glob.escape(path.rstrip('/'))}/**/*.ipynb" if os.path.isdir(there) else path.replace("[", "[[]")
    found = glob.glob(pattern, root_dir=folder, recursive=True)
    return sorted(
        one
        for one in found
        if one.endswith(".ipynb") and ".ipynb_checkpoints" not in one.split(os.sep) and os.path.isfile(folder / one)
    )
