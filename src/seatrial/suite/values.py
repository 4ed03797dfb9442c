"""Durations, sizes and requirements: what users write as text, and the numbers that they mean."""

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
        raise ValueError("it has a NUL in it, which no command and no variable can hold")
    return text


def _reason(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty; say why, for everybody who reads the plan or the report")
    return text


def _argument(text: str) -> str:
    if not text.strip() or text.startswith("-"):
        raise ValueError(f"{text!r} is handed to other programs, which would take it for an option of theirs")
    return text


def _variable(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise ValueError(f"{text!r} cannot be the name of a variable: letters, digits and _, and no digit first")
    return text


Text = Annotated[str, Field(strict=True), AfterValidator(_no_nul)]
Reason = Annotated[Text, AfterValidator(_reason), Fill.NEVER]
Argument = Annotated[Text, AfterValidator(_argument)]
Variable = Annotated[Text, AfterValidator(_variable)]

_OPERATORS = (">=", "<=", "==", "!=", ">", "<")


class Requirement(msgspec.Struct, frozen=True):
    """`>=16Gi`, `A100`, `[A100, H100]`: an operator and what the capability is compared with."""

    operator: str
    operands: tuple[str | float, ...]  # more than one only for "==": any of them
    text: str

    def met_by(self, have: str | float) -> bool:
        if self.operator in ("==", "!="):
            # A number is compared as text with a capability that is text.
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
            raise ValueError("a list of alternatives holds names or numbers, at least one: [A100, H100]")
        return Requirement("==", tuple(map(_operand, value)), "one of " + ", ".join(map(str, value)))
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        raise ValueError(f'{value!r} is not a requirement; write ">=1", "<80Gi", a name, a number or a list of names')
    text = str(value).strip()
    operator = next((op for op in _OPERATORS if text.startswith(op)), "")
    operand = _operand(text[len(operator) :].strip()) if operator or isinstance(value, str) else float(value)
    if operand == "" or (operator in (">=", "<=", ">", "<") and isinstance(operand, str)):
        raise ValueError(f'{value!r} compares with no number; write for example "{operator}1" or "{operator}16Gi"')
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

# The one form of globs: of names (cells, axis values, tags, steps, metrics), and of the notebooks in a folder.


def glob_matches(pattern: str, name: str) -> bool:
    """`*` is any text, `?` one character. Everything else is itself: brackets too, for the ids of cells have them."""
    return _compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.compile("".join(parts), re.DOTALL)


def names_several(path: str) -> bool:
    """Whether the path of a notebook stands for all that a glob matches, or that are in a folder."""
    return "*" in path or "?" in path or not path.endswith(".ipynb")


def find_notebooks(folder: Path, path: str) -> list[str]:
    """What `path` names in `folder`: a file, all that a glob matches (`**`: also in folders below), or all notebooks in
    a folder and below it. Checkpoints that Jupyter keeps are none."""
    there = folder / path
    if os.path.isfile(there):  # os.path, here and elsewhere: to pathlib a name that is too long is an error
        return [path]
    pattern = f"{glob.escape(path.rstrip('/'))}/**/*.ipynb" if os.path.isdir(there) else path.replace("[", "[[]")
    found = glob.glob(pattern, root_dir=folder, recursive=True)
    return sorted(
        one
        for one in found
        if one.endswith(".ipynb") and ".ipynb_checkpoints" not in one.split(os.sep) and os.path.isfile(folder / one)
    )
