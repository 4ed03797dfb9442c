"""Suite errors: all problems at once, each with its position, line and the nearest known name."""

import contextlib
import difflib
import json
import math
import re
import types
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, Protocol, Union, get_args, get_origin

import msgspec
from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic.fields import FieldInfo

from seatrial import SeatrialError
from seatrial.job.units import count

_SHOWN = 50
_WIDTH = 120
_ELSEWHERE = {"axes": "matrix", "run": "command", "script": "command"}  # names of fields in other tools


class SourceMark(msgspec.Struct, frozen=True):
    """A position in a file; line and column count from 1."""

    file: str
    line: int
    column: int
    text: str = ""  # the line

    def __str__(self) -> str:
        return f"{printable(self.file)}:{self.line}:{self.column}"


class Problem(msgspec.Struct, frozen=True):
    message: str
    mark: SourceMark | None = None
    path: str = ""  # trials.generic.commands[0]; shown if there is no file
    chain: tuple[str, ...] = ()  # including files, outermost first

    @property
    def where(self) -> str:
        return str(self.mark or printable(self.path) or "suite")

    def __str__(self) -> str:
        lines = [f"{self.where}: {printable(self.message)}"]
        if self.mark is not None:
            lines += _excerpt(self.mark)
        lines += [f"  included by {printable(file)}" for file in reversed(self.chain)]
        return "\n".join(lines)


class SuiteError(SeatrialError):
    """An invalid suite, with all of its problems in the order of their lines."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        def order(problem: Problem) -> tuple[bool, str, int, int]:
            mark = problem.mark
            return (True, mark.file, mark.line, mark.column) if mark else (False, problem.path, 0, 0)

        self.problems = tuple(sorted(dict.fromkeys(problems), key=order))
        super().__init__(self.problems)

    def __str__(self) -> str:
        shown = [str(problem) for problem in self.problems[:_SHOWN]]
        rest = len(self.problems) - len(shown)
        total = f"{len(self.problems)} problem{'s' * (len(self.problems) != 1)}"
        return "\n".join([*shown, f"and {rest} more"] if rest else shown) + f"\n{total}"


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: `; did you mean 'x'?`, else the known names."""
    names = list(dict.fromkeys(known))
    close = closest(name, names)
    if close is not None:
        return f"; did you mean {close!r}?"
    if not names:
        return "; none are defined"
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return f"; known: {shown}"


def closest(name: object, known: Iterable[str]) -> str | None:
    """The known name that was probably meant. A name with another first letter must be nearer, or have the same
    letters."""
    folded, given = {one.lower(): one for one in known}, str(name).lower()[:100]
    for near in difflib.get_close_matches(given, list(folded), n=3, cutoff=0.62):
        alike = near[:1] == given[:1] or sorted(near) == sorted(given)
        if alike or difflib.SequenceMatcher(None, given, near).ratio() >= 0.7:
            return folded[near]
    return None


def printable(text: str) -> str:
    """`text` with control characters escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _excerpt(mark: SourceMark) -> list[str]:
    if not mark.text.strip():
        return []
    start = max(0, mark.column - 1 - _WIDTH // 2) if len(mark.text) > _WIDTH else 0
    text = mark.text[start : start + _WIDTH]
    split = max(0, mark.column - 1 - start)
    inside_list = sum(mark.text[: mark.column - 1].count(char) * (1 if char in "[{" else -1) for char in "[]{}") > 0
    in_path = mark.file.startswith("--") and "=" in text[split:]  # of `--set PATH=VALUE`
    marked = (_PATH_SPAN if in_path else _FLOW_SPAN if inside_list else _BLOCK_SPAN).match(text, split)
    end = marked.end() if marked else split
    before, inside, after = (printable(part.replace("\t", " ")) for part in (text[:split], text[split:end], text[end:]))
    return [
        f"{mark.line:>5} | {before}{inside}{after}",
        f"{'':>5} | {' ' * len(before)}{'^' * max(1, len(inside.rstrip()))}",
    ]


# The key or value that starts at a position: tabs, a quoted text, or up to `: `, ` #`, the end of the line and, inside
# a list or map in brackets, up to the next item.
_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*'"""
_PATH_SPAN = re.compile(r"\[[^\]=]*\]?|[^.=\[]+")
_BLOCK_SPAN = re.compile(rf"\t+|{_QUOTED}|(?:(?!:(?:\s|$)|\s\#).)+")
_FLOW_SPAN = re.compile(rf"{_QUOTED}|(?:(?!:(?:\s|$)|\s\#|[,\]}}]).)+")


KeyPath = tuple[str | int, ...]


class Report(Protocol):
    """Reports a problem at a path; `key`: the key is wrong, not the value."""

    def __call__(self, path: KeyPath, message: str, key: bool = False) -> None: ...


def dotted(path: KeyPath) -> str:
    """`trials.generic.commands[0]`"""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def explain(error: ValidationError, model: type[BaseModel], raw_at: Any) -> Iterator[tuple[KeyPath, bool, str]]:
    """Translates pydantic's errors: for each, its path, whether the key is wrong, and the message. `raw_at(path)`
    returns a scalar's text."""
    items = _merged(error.errors(include_url=False))
    # `- echo a: b` is a map to YAML.
    split = {item["loc"][:-1] for item in items if item["type"] == "extra_forbidden" and " " in str(item["loc"][-1])}
    for item in items:
        loc: KeyPath = tuple(item["loc"])
        if loc and loc[-1] == "[key]":
            loc = loc[:-1]
        kind = item["type"]
        if kind == "extra_forbidden":
            known = _field_names(_annotations_at(model, loc[:-1]))
            name, is_former = str(loc[-1]), loc[-1] in known  # a former name is unknown if the current one is set too
            meant = _ELSEWHERE.get(name, name)
            near = nearest(meant if meant in known else name, known)
            hint = " (a former name of a field already set); remove it" if is_former else near
            if " " in name:
                hint = "; if this is text, quote it to its end, because YAML reads `: ` as the end of a key"
            yield loc, True, f"unknown field {name!r}{hint}"
        elif kind == "missing":
            if loc[:-1] in split:
                continue
            fields = [_fields(annotation).get(str(loc[-1])) for annotation in _annotations_at(model, loc[:-1])]
            described = next((f" ({one.description.rstrip('.')})" for one in fields if one and one.description), "")
            yield loc[:-1], True, f"`{loc[-1]}` is missing{described}"
        else:
            yield loc, False, _message(kind, item, model, loc, raw_at(loc))


_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
}


def _merged(items: Iterable[Any]) -> list[Any]:
    """Merges pydantic's errors for each branch of a union of scalars into one, and drops "too short" errors of lists
    that have wrong items."""
    merged: list[Any] = []
    items = list(items)
    inside = {item["loc"][:depth] for item in items for depth in range(len(item["loc"]))}
    for item in items:
        if item["type"] == "too_short" and item["loc"] in inside:
            continue
        last = merged[-1] if merged else None
        if last is not None and _is_branch(item) and _is_branch(last) and last["input"] is item["input"]:
            expected = last.get("expected") or [_EXPECTED[last["type"]]]
            merged[-1] = {**last, "expected": [*expected, _EXPECTED[item["type"]]]}
        else:
            merged.append(item)
    return [{**item, "loc": item["loc"][:-1]} if "expected" in item else item for item in merged]


def _is_branch(item: Any) -> bool:
    return item["type"] in _EXPECTED and bool(item["loc"]) and item["loc"][-1] in _BRANCHES


_BRANCHES = ("int", "float", "str", "bool")  # added by pydantic to the path of a value in a union


def _message(kind: str, item: Any, model: type[BaseModel], loc: KeyPath, raw: str | None) -> str:
    value, context = item["input"], item.get("ctx", {})
    if isinstance(value, dict) and set(value) == {"secret"}:
        return "a secret cannot be used here; use `env: {NAME: {secret: ...}}`"
    if kind == "string_type" and isinstance(value, int | float):
        written = raw if raw is not None else json.dumps(value)
        return f'expected text, but YAML reads {written} as {describe(value)}; write "{written}"'
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        allowed = _annotations_at(model, loc)
        fields, meant = _field_names(allowed), next((one.MAIN for one in allowed if hasattr(one, "MAIN")), None)
        advice = f"; write {{{meant}: {value}}}" if meant and _is_scalar(value) and value is not None else ""
        return f"expected a map{' with ' + ', '.join(fields[:12]) if fields else ''}, got {describe(value)}{advice}"
    if kind in ("tuple_type", "list_type"):
        advice = f"; write [{json.dumps(value, ensure_ascii=False)}]" if _is_scalar(value) else ""
        return f"expected a list, got {describe(value)}{advice}"
    if kind == "too_short":
        return f"expected at least {count(context['min_length'], 'item')}, got {context['actual_length']}"
    if kind == "literal_error":
        literals = [each for each in _annotations_at(model, loc) if get_origin(each) is Literal]
        known = [str(choice) for each in literals for choice in get_args(each)]
        near = closest(value, known) if isinstance(value, str) else None
        hint = f"; did you mean {near!r}?" if near else ""
        return f"expected one of {', '.join(known)}, got {describe(value)}{hint}"
    if kind == "value_error":
        return str(context.get("error") or item["msg"].removeprefix("Value error, "))
    if kind in _EXPECTED:
        *others, last = item.get("expected") or [_EXPECTED[kind]]
        advice = _number_advice(value) if last == "a number" else ""
        return f"expected {', '.join(others)}{' or ' if others else ''}{last}, got {describe(value)}{advice}"
    return f"{item['msg'].replace('Input should', 'must').replace('String should', 'must')}, got {describe(value)}"


def _number_advice(value: Any) -> str:
    """For a text where a number was expected."""
    if isinstance(value, str) and value.strip().lstrip("+-.").lower() in ("nan", "inf", "infinity"):
        return "; remove the line"
    with contextlib.suppress(ValueError):
        return "; write it without quotes" if isinstance(value, str) and math.isfinite(float(value)) else ""
    return ""


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | bool) or value is None


def describe(value: Any) -> str:
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:60] + "…")
    return "a map" if isinstance(value, dict) else "a list"


def _fields(annotation: Any) -> dict[str, FieldInfo]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {known: field for name, field in annotation.model_fields.items() for known in _known_as(name, field)}
    return {}


def _known_as(name: str, field: FieldInfo) -> Iterable[str]:
    aliases = field.validation_alias
    return map(str, aliases.choices) if isinstance(aliases, AliasChoices) else [field.alias or name]


def _field_names(annotations: list[Any]) -> list[str]:
    return [name for annotation in annotations for name in _fields(annotation)]


def _annotations_at(model: type[BaseModel], loc: KeyPath) -> list[Any]:
    """The types allowed at `loc`; skips parts that are not fields (a union's branch)."""
    here: list[Any] = [model]
    for part in loc:
        inner: list[Any] = []
        for annotation in here:
            fields, origin, args = _fields(annotation), get_origin(annotation), get_args(annotation)
            if part in fields:
                inner += _flat(fields[str(part)].annotation)
            elif origin is dict and isinstance(part, str):
                inner += _flat(args[1])
            elif origin in (tuple, list) and isinstance(part, int):
                inner += _flat(args[0])
        here = inner or here
    return here


def _flat(annotation: Any) -> list[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _flat(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [each for arg in get_args(annotation) for each in _flat(arg)]
    return [annotation]
