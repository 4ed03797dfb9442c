"""The axes of a trial: named lists of values, alone or zipped, each value with its label and what it needs."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from seatrial.suite.models import Machine, Runtime, names_a_secret
from seatrial.suite.placeholders import as_text
from seatrial.suite.suite import HERE, Axis, AxisValue, Group
from seatrial.suite.trial import Rule, TrialModel
from seatrial.suite.values import Requirement, glob_matches, parse_requirement
from seatrial.suite.yaml.problem import nearest

RESERVED = ("trial", "tag", "why", "step", "repeat")  # `repeat` is made by the field of that name
_AXIS = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_UNFIT = re.compile(r"[^\w.+:/@=~^<>!*-]+")
_LABEL = 60

ReportAxis = Callable[[tuple[str | int, ...], str], None]


def make_groups(
    trial: TrialModel, machines: Mapping[str, Machine], runtimes: Mapping[str, Runtime], report: ReportAxis
) -> tuple[Group, ...]:
    """All axes but `repeat`, in the order in which they are written. Paths that `report` gets start at the trial."""
    maker = _Maker(machines, runtimes, report)
    groups: list[Group] = []
    for name in ("runtime", "machine"):
        if getattr(trial, name) is not None:
            groups.append(Group((maker.axis((name,), name, getattr(trial, name)),)))
    for name, value in trial.matrix.items():
        groups.append(Group((maker.axis(("matrix", name), name, value),)))
    for index, columns in enumerate(trial.zip):
        group = maker.zipped(index, columns)
        if group is not None:
            groups.append(group)
    return tuple(groups)


class _Maker:
    def __init__(self, machines: Mapping[str, Machine], runtimes: Mapping[str, Runtime], report: ReportAxis) -> None:
        self._known = {"machine": [*machines] or [HERE], "runtime": [*runtimes]}
        self._report = report
        self._names: set[str] = set()

    def zipped(self, index: int, columns: Mapping[str, Any]) -> Group | None:
        axes = tuple(self.axis(("zip", index, name), name, list(column)) for name, column in columns.items())
        lengths = {axis.name: len(axis.values) for axis in axes}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            self._report(("zip", index), f"axes of one zip have the same number of values: {counts}")
            return None
        return Group(axes) if axes else None

    def axis(self, path: tuple[str | int, ...], name: str, written: Any) -> Axis:
        if name in RESERVED or not _AXIS.fullmatch(name):
            why = (
                "is a word of its own in --select and rules"
                if name in RESERVED
                else "is not a name (letters, digits, _, -)"
            )
            self._report(path, f"axis {name!r} {why}; call it something else")
        if name in self._names:
            self._report(path, f"axis {name!r} is here twice")
        self._names.add(name)
        named = name in self._known
        if named and written == "all":
            written = self._known[name]
        if isinstance(written, list) and not written:
            self._report(path, f"axis {name!r} has no values" + (f": the suite has no {name}s" if named else ""))
        listed = isinstance(written, list)
        values = [
            self._named(path + ((index,) if listed else ()), name, value) if named
            else self._value(path + ((index,) if listed else ()), value)
            for index, value in enumerate(written if listed else [written])
        ]  # fmt: skip
        self._labels(path if listed else path[:-1], name, values)
        return Axis(name, tuple(values), path)

    def _labels(self, path: tuple[str | int, ...], name: str, values: list[AxisValue]) -> None:
        first: dict[str, int] = {}
        for index, value in enumerate(values):
            if first.setdefault(value.label, index) != index:
                also = f"values {first[value.label] + 1} and {index + 1} of axis {name!r} have the same label"
                self._report((*path, index), f"{also} {value.label!r}; tell maps apart by `name:`")

    def _named(self, path: tuple[str | int, ...], axis: str, value: Any) -> AxisValue:
        known = self._known[axis]
        if not isinstance(value, str):
            self._report(path, f"expected the name of a {axis}, got {value!r}")
        elif value not in known and not (axis == "machine" and value == HERE):
            self._report(path, f"unknown {axis} {value!r}{nearest(value, [*known, 'all'])}")
        return AxisValue(str(value), value, {})

    def _value(self, path: tuple[str | int, ...], value: Any) -> AxisValue:
        if isinstance(value, list):
            self._report(path, "a list inside a list; a value is a scalar or a map")
        if names_a_secret(value):
            self._report(path, "a value of an axis cannot be a secret: it would stand in ids and commands; use `env`")
        if not isinstance(value, dict):
            return AxisValue(label_of(value), value, {})
        needs = value.get("needs", {})
        return AxisValue(label_of(value), {k: v for k, v in value.items() if k != "needs"}, self._needs(path, needs))

    def _needs(self, path: tuple[str | int, ...], needs: Any) -> dict[str, Requirement]:
        if not isinstance(needs, dict):
            self._report((*path, "needs"), "expected a map of capabilities")
            return {}
        parsed = {}
        for name, text in needs.items():
            try:
                parsed[name] = parse_requirement(text)
            except ValueError as error:
                self._report((*path, "needs", name), str(error))
        return parsed


def label_of(value: Any) -> str:
    """How a value reads in an id: short, on one line, without the characters that ids are made of."""
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


# Which values of an axis a rule (`exclude`, `xfail`) means.


def matching_labels(axis: Axis, wanted: Any) -> frozenset[str]:
    """The labels of the values that `wanted` means: a label, a glob, a part of a map, or a list of those."""
    wishes = wanted if isinstance(wanted, list) else [wanted]
    return frozenset(value.label for value in axis.values if any(_means(value, wish) for wish in wishes))


def compile_rule(rule: Rule, axes: Mapping[str, Axis]) -> dict[str, frozenset[str]]:
    """For each axis that the rule names, the labels that it means: a cell that has one of each is meant."""
    # An axis that is not there is `repeat`, taken away by --repeat 1: its only number is the first.
    return {
        name: matching_labels(axes[name], wanted) if name in axes else frozenset({"1"} if _has_first(wanted) else ())
        for name, wanted in rule.axes.items()
    }


def _has_first(wanted: Any) -> bool:
    return 1 in (wanted if isinstance(wanted, list) else [wanted])


def _means(value: AxisValue, wish: Any) -> bool:
    if isinstance(wish, dict):
        return isinstance(value.value, dict) and all(
            value.value.get(key, _NOTHING) == item for key, item in wish.items()
        )
    if isinstance(wish, str):
        return wish == value.value or glob_matches(wish, value.label)
    return bool(value.value == wish) or value.label == as_text(wish)


_NOTHING = object()
