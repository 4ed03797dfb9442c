"""Fills the `${…}` placeholders of trials and runtimes, once per combination of values."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from pydantic import BaseModel, ValidationError

from seatrial.plan.plan import PlanError
from seatrial.suite.placeholders import PLACEHOLDER, Fill, as_text, filled_texts, look_up, placeholders
from seatrial.suite.yaml.problem import dotted, explain


class Resolved(NamedTuple):
    model: Any
    filled: dict[str, Any]  # the fields that had a placeholder, filled in


class Resolver:
    """Fills one entry of a suite: its model (or None) and the data it was made from."""

    def __init__(self, where: str, model: BaseModel | None, data: Mapping[str, Any], apart: frozenset[str]) -> None:
        self._where = where
        self._model = model
        self._data = {key: value for key, value in data.items() if key not in apart}
        self._texts = [*filled_texts(self._data, model)]
        self._axes = dict.fromkeys(name.split(".")[0] for one in self._texts for name in placeholders(one.text))
        self._known: dict[tuple[str, ...], Resolved] = {}

    def resolve(self, labels: Mapping[str, str], values: Mapping[str, Any]) -> Resolved:
        """Raises PlanError if the filled entry is invalid."""
        if self._model is None or not self._texts:
            return Resolved(self._model, {})
        key = tuple(labels[axis] for axis in self._axes)
        if key not in self._known:
            fields = dict.fromkeys(str(one.path[0]) for one in self._texts)
            filled = {field: msgspec.to_builtins(self._data[field]) for field in fields}  # copies
            for path, text, how in self._texts:
                inside: Any = filled
                for part in path[:-1]:
                    inside = inside[part]
                inside[path[-1]] = fill(text, labels, values, how)
            try:
                self._known[key] = Resolved(type(self._model).model_validate({**self._data, **filled}), filled)
            except ValidationError as error:
                with_values = ", ".join(f"{axis}={labels[axis]}" for axis in self._axes)
                problems = explain(error, type(self._model), lambda _: None)
                lines = [f"{self._where}.{dotted(loc)}: {message} (with {with_values})" for loc, _, message in problems]
                raise PlanError("\n".join(lines)) from None
        return self._known[key]


def fill(text: str, labels: Mapping[str, str], values: Mapping[str, Any], how: Fill | None = None) -> Any:
    """Fills `text`. Raises KeyError for an unknown name, which loading has ruled out."""
    whole = PLACEHOLDER.fullmatch(text)
    if how is Fill.TYPED and whole and whole[1] is None:
        return look_up(whole[2], values)

    def put(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[1]
        value = look_up(match[2], values)
        # A whole map or list is shown as its label.
        named = isinstance(value, dict | list) and match[2] in labels
        escaped = how is Fill.PATTERN and (named or isinstance(value, str))
        shown = labels[match[2]] if named else as_text(value)
        return re.escape(shown) if escaped else shown

    return PLACEHOLDER.sub(put, text)
