"""Durations, sizes and requirements: what users write as text, and the numbers that they mean."""

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_DURATION_PATTERN = r"^(\d+(\.\d+)?(ms|s|m|h|d))+$"

_BYTES = {"": 1, **{unit: 1024 ** (n + 1) for n, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"))}}
_BYTES |= {unit: 1000 ** (n + 1) for n, unit in enumerate(("K", "M", "G", "T", "P"))}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)((?:[KMGTP]i?))B?")
_SIZE_PATTERN = r"^\d+(\.\d+)?[KMGTP]i?B?$"


def parse_duration(value: Any) -> float:
    """Seconds of `90`, `"20m"`, `"1h30m"`, `"500ms"`."""
    seconds = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str) and _DURATION.fullmatch(value.strip()):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(value))
    if not math.isfinite(seconds) or seconds <= 0:
        raise ValueError(
            f"{value!r} is not a duration; write seconds (90) or units (500ms, 20m, 1h30m, 2d), more than 0"
        )
    return seconds


def parse_size(value: Any) -> int:
    """Bytes of `"16Gi"`, `"1.5G"`, `"512MiB"`. A bare number is refused: nobody means 16 bytes of memory."""
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or float(match[1]) <= 0:
        raise ValueError(
            f"{value!r} is not a size; write a number with a unit: 512Mi, 16Gi, 1.5T (or M, G: powers of 1000)"
        )
    return int(float(match[1]) * _BYTES[match[2]])


def format_size(size_bytes: float) -> str:
    for unit in ("Pi", "Ti", "Gi", "Mi", "Ki"):
        if size_bytes >= _BYTES[unit]:
            return f"{size_bytes / _BYTES[unit]:.4g}{unit}"
    return f"{size_bytes:.0f}"


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": _DURATION_PATTERN}]}
    ),
]
Size = Annotated[
    int, BeforeValidator(parse_size), WithJsonSchema({"type": "string", "pattern": _SIZE_PATTERN, "examples": ["16Gi"]})
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
Reason = Annotated[Text, AfterValidator(_reason)]
Argument = Annotated[Text, AfterValidator(_argument)]
Variable = Annotated[Text, AfterValidator(_variable)]

_OPERATORS = (">=", "<=", "==", "!=", ">", "<")


@dataclass(frozen=True)
class Requirement:
    """`>=16Gi`, `A100`, `[A100, H100]`: an operator and what the capability is compared with."""

    operator: str
    operands: tuple[str | float, ...]  # more than one only for "==": any of them
    text: str

    def met_by(self, have: str | float) -> bool:
        if self.operator in ("==", "!="):
            equal = any(_same(have, operand) for operand in self.operands)
            return equal == (self.operator == "==")
        (want,) = self.operands
        if isinstance(have, str) or isinstance(want, str):
            return False
        return {">=": have >= want, "<=": have <= want, ">": have > want, "<": have < want}[self.operator]


def _same(have: str | float, want: str | float) -> bool:
    if isinstance(have, str) and not isinstance(want, str):
        return have == f"{want:g}"
    return have == want


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
    if _SIZE.fullmatch(text):
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
