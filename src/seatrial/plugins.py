"""Which kinds of trial and which targets are installed: found by entry points; a plugin is a package of its own."""

from functools import cache
from importlib.metadata import entry_points
from typing import Any

from seatrial.target import TargetKind
from seatrial.trial import Kind


@cache
def kinds() -> dict[str, Kind]:
    return {point.name: point.load() for point in entry_points(group="seatrial.kinds")}


@cache
def targets() -> dict[str, TargetKind]:
    return {point.name: point.load() for point in entry_points(group="seatrial.targets")}


def models() -> tuple[dict[str, Any], dict[str, Any]]:
    """What the loader of suites needs: the models of the kinds' and of the targets' fields."""
    return {name: kind.model for name, kind in kinds().items()}, {
        name: kind.options for name, kind in targets().items()
    }
