"""The axes of a trial: named lists of values, alone or zipped, each value with its label and needs."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from seatrial.suite.models import Machine, Runtime, names_a_secret
from seatrial.suite.placeholders import as_text
from seatrial.suite.suite import HERE, Axis, AxisValue, Group
from seatrial.suite.trial import Rule, TrialModel
from seatrial.suite.values import Requirement, glob_matches, parse_requirement
from seatrial.suite.yaml.problem import KeyPath, Report, nearest

RESERVED = ("trial", "tag", "why", "step", "repeat")  # the field `repeat` makes the axis `repeat`
_AXIS = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_UNFIT = re.compile(r"[^\w.+:/@=~^<>!*-]+")
_LABEL = 60


def make_groups(
    name: str, trial: TrialModel, machines: Mapping[str, Machine], runtimes: Mapping[str, Runtime], report: Report
) -> tuple[Group, ...]:
    """All axes but `repeat`, in the order of the file."""
    maker = _Maker(machines, runtimes, report)
    path: KeyPath = ("trials", name)
    given = [(field, getattr(trial, field)) for field in ("runtime", "machine")]
    groups = [Group((maker.axis((*path, field), field, value),)) for field, value in given if value is not None]
    for axis, value in trial.matrix.items():
        groups.append(Group((maker.axis((*path, "matrix", axis), axis, value),)))
    for index, columns in enumerate(trial.zip):
        at = (*path, "zip", index)
        axes = tuple(maker.axis((*at, axis), axis, list(column)) for axis, column in columns.items())
        if len({len(axis.values) for axis in axes}) > 1:
            counts = ", ".join(f"{axis.name} has {len(axis.values)}" for axis in axes)
            report(at, f"axes of one `zip` need the same number of values: {counts}")
        elif axes:
            groups.append(Group(axes))
    return tuple(groups)


class _Maker:
    def __init__(self, machines: Mapping[str, Machine], runtimes: Mapping[str, Runtime], report: Report) -> None:
        self._known = {"machine": [*machines] or [HERE], "runtime": [*runtimes]}
        self._report = report
        self._names: set[str] = set()

    def axis(self, path: KeyPath, name: str, written: Any) -> Axis:
        if name in RESERVED:
            self._report(path, f"axis name {name!r} is reserved; choose another name")
        elif not _AXIS.fullmatch(name):
            self._report(path, f"invalid axis name {name!r}; use letters, digits, _ and -, not starting with a digit")
        if name in self._names:
            self._report(path, f"duplicate axis {name!r}")
        self._names.add(name)
        named = name in self._known
        if named and written == "all":
            written = self._known[name]
        if isinstance(written, list) and not written:
            self._report(path, f"axis {name!r} has no values" + (f": the suite has no {name}s" if named else ""))
        paths = [(*path, index) for index in range(len(written))] if isinstance(written, list) else [path]
        values = [
            self._named(at, name, value) if named else self._value(at, value)
            for at, value in zip(paths, listed(written), strict=True)
        ]
        first: dict[str, int] = {}
        for index, value in enumerate(values):
            if first.setdefault(value.label, index) != index:
                also = f"values {first[value.label] + 1} and {index + 1} of axis {name!r} have the same label"
                self._report(paths[index], f"{also} {value.label!r}; give maps a different `name`")
        return Axis(name, tuple(values), path)

    def _named(self, path: KeyPath, axis: str, value: Any) -> AxisValue:
        known = self._known[axis]
        if not isinstance(value, str):
            self._report(path, f"expected the name of a {axis}, got {value!r}")
        elif value not in known and not (axis == "machine" and value == HERE):
            self._report(path, f"unknown {axis} {value!r}{nearest(value, [*known, 'all'])}")
        return AxisValue(str(value), value, {})

    def _value(self, path: KeyPath, value: Any) -> AxisValue:
        if isinstance(value, list):
            self._report(path, "expected a scalar or a map as axis value, got a list")
        if names_a_secret(value):
            self._report(path, "an axis value cannot be a secret, because ids and commands show it; use `env`")
        if not isinstance(value, dict):
            return AxisValue(label_of(value), value, {})
        needs = value.get("needs", {})
        if not isinstance(needs, dict):
            self._report((*path, "needs"), "expected a map of capabilities")
            needs = {}
        parsed: dict[str, Requirement] = {}
        for name, text in needs.items():
            try:
                parsed[name] = parse_requirement(text)
            except ValueError as error:
                self._report((*path, "needs", name), str(error))
        return AxisValue(label_of(value), {k: v for k, v in value.items() if k != "needs"}, parsed)


def label_of(value: Any) -> str:
    """A value as it appears in an id: short, on one line, without the special characters of ids."""
    if isinstance(value, dict):
        fields = {key: item for key, item in value.items() if key not in ("name", "needs")}
        text = value["name"] if isinstance(value.get("name"), str) else "+".join(_pairs(fields))
    else:
        text = as_text(value)
    label = _UNFIT.sub("_", text).strip("_") or ("null" if value is None else "empty")
    if len(label) > _LABEL:
        label = f"{label[: _LABEL - 9]}~{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return label


def _pairs(fields: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, item in fields.items():
        if isinstance(item, dict):
            yield from _pairs(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}:{as_text(item)}"


def matching_labels(axis: Axis, wanted: Any) -> frozenset[str]:
    """The labels of the values that match `wanted`: a label, a glob, a part of a map, or a list of those."""
    return frozenset(value.label for value in axis.values if any(_means(value, wish) for wish in listed(wanted)))


def compile_rule(rule: Rule, axes: Mapping[str, Axis]) -> dict[str, frozenset[str]]:
    """For each axis of the rule, the matching labels. A cell matches if it matches on every axis."""
    # Only `repeat` can be missing, because of --repeat 1: its only value is 1.
    return {
        name: matching_labels(axes[name], wanted) if name in axes else frozenset({"1"} if 1 in listed(wanted) else ())
        for name, wanted in rule.axes.items()
    }


def listed(wanted: Any) -> list[Any]:
    return wanted if isinstance(wanted, list) else [wanted]


def _means(value: AxisValue, wish: Any) -> bool:
    if isinstance(wish, dict):
        return isinstance(value.value, dict) and wish.items() <= value.value.items()
    if isinstance(wish, str):
        return wish == value.value or glob_matches(wish, value.label)
    return bool(value.value == wish) or value.label == as_text(wish)
