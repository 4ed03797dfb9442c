"""Registries of kinds, targets, drivers and readers: Seatrial's own, and those of installed packages.

Each is imported on first use, and entry points are read only for names that are not Seatrial's own, so a suite pays
only for what it uses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import cache, cached_property
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeVar

from seatrial import SeatrialError

if TYPE_CHECKING:
    from seatrial.kinds.protocol import Kind
    from seatrial.readers import Reader
    from seatrial.targets import TargetKind

_T = TypeVar("_T")

OWN_KINDS = ("runtime", "scale", "serving", "training")
OWN_TARGETS = ("kubernetes", "local")
OWN_DRIVERS = ("scale", "serving")
OWN_READERS = ("json", "kineto", "xplane")  # each is in the agent, described by seatrial.readers:NAME


class Registry(Mapping[str, _T]):
    """Maps names to `view(object)`, for Seatrial's own objects and those of an entry-point group. Loads on access."""

    def __init__(self, group: str, place: str, own: tuple[str, ...], view: Callable[[Any], _T]) -> None:
        """`place` locates Seatrial's own objects, as `module:name`; `{}` stands for the key."""
        self._group = group
        self._place = place
        self._own = own
        self._view = view

    def __getitem__(self, name: str) -> _T:
        if name in self._own:
            return self._view(resolve_name(self._place.format(name)))
        point = self._installed[name]
        try:
            return self._view(point.load())
        except Exception as error:  # the code of another distribution may raise anything
            why = f"{type(error).__name__}: {error}"
            raise SeatrialError(f"cannot load {name!r} ({point.value}) from {self._group}: {why}") from error

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._installed

    def __iter__(self) -> Iterator[str]:
        yield from sorted({*self._own, *self._installed})

    def __len__(self) -> int:
        return len({*self._own, *self._installed})

    @cached_property
    def _installed(self) -> dict[str, Any]:
        from importlib.metadata import entry_points

        return {point.name: point for point in entry_points(group=self._group)}


@cache
def kinds() -> Registry[Kind]:
    return _kinds(lambda kind: kind)


@cache
def targets() -> Registry[TargetKind]:
    return _targets(lambda target: target)


@cache
def drivers() -> Registry[Callable[[Any], Awaitable[None]]]:
    """Each is a function that takes a `seatrial.kinds.driver.Driver`."""
    return Registry("seatrial.drivers", "seatrial.kinds.{}.driver:drive", OWN_DRIVERS, lambda drive: drive)


@cache
def readers() -> Registry[Reader]:
    """An entry point names a module; docs/runtime.md has the contract."""
    from seatrial.readers import reader_of

    return Registry("seatrial.readers", "seatrial.readers:{}", OWN_READERS, reader_of)


@cache
def models() -> tuple[Registry[Any], Registry[Any]]:
    """The models of kinds and targets, for loading suites."""
    return _kinds(lambda kind: kind.model), _targets(lambda target: target.options)


def _kinds(view: Callable[[Any], _T]) -> Registry[_T]:
    return Registry("seatrial.kinds", "seatrial.kinds.{}.kind:kind", OWN_KINDS, view)


def _targets(view: Callable[[Any], _T]) -> Registry[_T]:
    return Registry("seatrial.targets", "seatrial.targets.{}:kind", OWN_TARGETS, view)
