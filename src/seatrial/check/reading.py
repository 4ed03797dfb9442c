"""The values that a training job's log told, as the agent noted them while it ran."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from seatrial.job import StepSeen

NO_NUMBER = "?"  # the agent's word for what a pattern read and is none


@dataclass(frozen=True)
class Reading:
    """One value of one line. `at_s` is when the line was read, since the agent began; what is not known is None."""

    value: float
    host: int
    step: int | None = None
    line: int | None = None
    at_s: float | None = None


@dataclass(frozen=True)
class Told:
    """What the log told under one name, by host. The agent keeps a bounded number of values, but counts all of them and
    knows the last of each host."""

    by_host: dict[int, list[Reading]]
    counts: dict[int, int]
    last: dict[int, float]

    def of(self, host: int) -> list[Reading]:
        return self.by_host.get(host, [])

    @property
    def readings(self) -> Iterator[Reading]:
        return (one for host in self.hosts for one in self.of(host))

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    @property
    def hosts(self) -> list[int]:
        return sorted(self.last)


def told(seen: StepSeen, name: str) -> Told:
    """The values under `name`. A note that makes no sense is left out; the job's own text is never an error here."""
    by_host: dict[int, list[Reading]] = {}
    for note in seen.notes:
        if _is_of(note, name):
            for one in _readings(note):
                by_host.setdefault(one.host, []).append(one)
    last = {host: readings[-1].value for host, readings in by_host.items()}
    counts = {host: len(readings) for host, readings in by_host.items()}
    for host, summary in _summaries(seen, name):
        value = as_number(summary.get("last"))
        if value is not None:
            last[host] = value
        elif summary.get("last") == NO_NUMBER:  # an earlier number must not be taken for it
            last[host] = math.nan
        if isinstance(summary.get("count"), int):
            counts[host] = max(summary["count"], counts.get(host, 0))
    return Told(by_host, counts, last)


def as_number(value: Any) -> float | None:
    """A number as JSON carries it: `nan` and `inf`, which it has no numbers for, are texts."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def named(value: float) -> str:
    """A value for a person: four digits, or what kind of number it is not."""
    if math.isnan(value):
        return "nan"
    return f"{value:.4g}" if math.isfinite(value) else ("inf" if value > 0 else "-inf")


def _is_of(note: dict[str, Any], name: str) -> bool:
    return note.get("note") == "values" and note.get("name") == name and isinstance(note.get("values"), list)


def _readings(note: dict[str, Any]) -> Iterator[Reading]:
    host = note.get("host") if isinstance(note.get("host"), int) else 0
    for index, item in enumerate(note["values"]):
        value = as_number(item)
        if value is not None:
            step, line, at_s = (_at(note.get(key), index) for key in ("steps", "lines", "at"))
            yield Reading(
                value,
                int(host or 0),
                int(step) if isinstance(step, int | float) else None,
                int(line) if isinstance(line, int | float) else None,
                as_number(at_s),
            )


def _at(items: Any, index: int) -> Any:
    return items[index] if isinstance(items, list) and index < len(items) else None


def _summaries(seen: StepSeen, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    values = seen.result.get("values")
    hosts = values.get(name) if isinstance(values, dict) else None
    for host, summary in hosts.items() if isinstance(hosts, dict) else ():
        if isinstance(summary, dict) and str(host).isdigit():
            yield int(host), summary
