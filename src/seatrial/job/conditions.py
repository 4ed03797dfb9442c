"""The fields that a cell's metrics depend on: conditions, which must be equal for metrics to be comparable, and fields
under test, which may differ."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from os.path import commonprefix

import msgspec

_Fields = dict[str, str]  # dotted name -> value, as text

_MOST_SHOWN = 4  # differences listed in a message
_LONGEST = 60


class Settings(msgspec.Struct, frozen=True, dict=True):
    conditions: _Fields = {}
    under_test: _Fields = {}
    former: str = ""  # the fingerprint of Seatrial 0.1, of both together

    @cached_property
    def fingerprint(self) -> str:
        """Eight hex digits of the conditions; metrics with different fingerprints are never mixed. Empty if unknown."""
        return fields_digest(self.conditions) if self.conditions else ""


class WrittenFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fields of one suite entry by dotted name, as text with placeholders."""

    own: _Fields = {}
    workspace: _Fields = {}
    env: _Fields = {}


class FieldDifference(msgspec.Struct, frozen=True):
    """A field that differs; None means not set."""

    field: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        skip = _alike(self.before or "", self.after or "")
        return f"{self.field} {_shown(self.before, skip)} → {_shown(self.after, skip)}"


def fields_digest(fields: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:8]


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[FieldDifference]:
    names = dict.fromkeys([*before, *after])
    both = ((name, before.get(name), after.get(name)) for name in names)
    return [FieldDifference(name, was, now) for name, was, now in both if was != now]


def other_conditions(before: Settings, after: Settings) -> list[FieldDifference]:
    """The conditions that differ. A field that is now under test does not count; one that became a condition is
    compared with its former value under test."""
    known = {**before.under_test, **before.conditions}
    counted = {name: value for name, value in before.conditions.items() if name not in after.under_test}
    counted |= {name: known[name] for name in after.conditions if name in known}
    return differences(counted, after.conditions)


def differences_text(found: list[FieldDifference]) -> str:
    """`hardware.cores 8 → 4, machine.memory (not set) → 16Gi and 2 more`"""
    more = f" and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return ", ".join(map(str, found[:_MOST_SHOWN])) + more


def flat_fields(value: object, name: str) -> Iterator[tuple[str, str]]:
    """The leaves of nested maps with their dotted names; a list is one value."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from flat_fields(item, f"{name}.{key}" if name else str(key))
    else:
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)
        yield name, text


def _alike(before: str, after: str) -> int:
    """Length of the common start of two long values that need not be shown: all but a little before they differ."""
    if max(len(before), len(after)) <= _LONGEST:
        return 0
    return max(0, len(commonprefix([before, after])) - _LONGEST // 4)  # noqa: RUF071 - of texts, not of paths


def _shown(value: str | None, skip: int) -> str:
    if value is None:
        return "(not set)"
    line = " ".join(value[skip:].split()) or "(empty)"
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
    return f"…{line}" if skip else line
