"""Which values of an axis a rule (`exclude`, `xfail`) means."""

from collections.abc import Mapping
from typing import Any

from seatrial.suite.glob import glob_matches
from seatrial.suite.models import Rule
from seatrial.suite.substitute import as_text
from seatrial.suite.suite import Axis, AxisValue


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
