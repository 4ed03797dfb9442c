"""Values in a job's log, as noted by the agent while it ran."""

import math
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import msgspec

from seatrial.job import ObservedStep

NO_NUMBER = "?"  # written by the agent for a matched text that is not a number


class LogValue(msgspec.Struct, frozen=True):
    """One value of one line. `at_s` is when the line was read, since the agent started. None is unknown."""

    value: float
    host: int
    step: int | None = None
    line: int | None = None
    at_s: float | None = None
    rank: int | None = None  # if several processes write into the log of a host


class LogValues(msgspec.Struct, frozen=True):
    """The values of one name, by host. The agent keeps a limited number of values, but counts all of them and always
    keeps the last one of each host."""

    by_host: dict[int, list[LogValue]]
    counts: dict[int, int]
    last: dict[int, float]
    unread: dict[int, int]  # number of matched texts that are not numbers

    def thinned(self, host: int) -> bool:
        """Whether some values of the host were not kept."""
        return len(self.of(host)) + self.unread.get(host, 0) < self.counts.get(host, 0)

    def silent(self, hosts: int) -> list[int]:
        """The hosts below `hosts` without a value."""
        return [host for host in range(hosts) if host not in self.last]

    def of(self, host: int) -> list[LogValue]:
        return self.by_host.get(host, [])

    def by_rank(self, host: int) -> dict[int | None, list[LogValue]]:
        """The values of a host by rank; None for lines without a rank."""
        found: dict[int | None, list[LogValue]] = {}
        for one in self.of(host):
            found.setdefault(one.rank, []).append(one)
        return found

    @property
    def hosts(self) -> list[int]:
        return sorted(self.last)


def log_values(observed: ObservedStep, name: str) -> LogValues:
    """The values of `name`. Malformed notes are ignored: the text of a job is never an error here."""
    by_host: dict[int, list[LogValue]] = {}
    unread: dict[int, int] = {}
    for note in observed.notes:
        if note.get("note") == "values" and note.get("name") == name and isinstance(note.get("values"), list):
            for one in _readings(note):
                by_host.setdefault(one.host, []).append(one)
            unread[_host(note)] = unread.get(_host(note), 0) + note["values"].count(NO_NUMBER)
    last = {host: readings[-1].value for host, readings in by_host.items()}
    counts = {host: len(by_host.get(host, ())) + unread.get(host, 0) for host in {*by_host, *unread}}
    values = observed.result.get("values")
    hosts = values.get(name) if isinstance(values, dict) else None
    for number, summary in hosts.items() if isinstance(hosts, dict) else ():
        if not isinstance(summary, dict) or not str(number).isdigit():
            continue
        host, value = int(number), as_number(summary.get("last"))
        if value is not None:
            last[host] = value
            _complete(by_host.setdefault(host, []), host, value, summary)
        elif summary.get("last") == NO_NUMBER:  # do not use an earlier number instead
            last[host] = math.nan
        if isinstance(summary.get("count"), int):
            counts[host] = max(summary["count"], counts.get(host, 0))
        if isinstance(summary.get("unread"), int):
            unread[host] = max(summary["unread"], unread.get(host, 0))
    return LogValues(by_host, counts, last, unread)


def hosts_text(hosts: list[int]) -> str:
    """`host 1`, `hosts 1, 2`; at most eight are listed."""
    shown = ", ".join(map(str, hosts[:8])) + (" …" if len(hosts) > 8 else "")
    return f"host {shown}" if len(hosts) == 1 else f"hosts {shown}"


def as_number(value: Any) -> float | None:
    """A number from JSON, in which `nan` and `inf` are texts; None if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def value_text(value: float) -> str:
    """A value for messages: four digits, `nan`, `inf` or `-inf`."""
    if math.isnan(value):
        return "nan"
    return f"{value:.4g}" if math.isfinite(value) else ("inf" if value > 0 else "-inf")


def _complete(readings: list[LogValue], host: int, value: float, summary: dict[str, Any]) -> None:
    """Appends the last value if it was not kept."""
    line, step = summary.get("last_line"), summary.get("last_step")
    if not isinstance(line, int):
        return
    before = readings[-1] if readings else None
    same_line = before is not None and before.line == line and math.isfinite(value) and before.value != value
    if before is None or (before.line or 0) < line or same_line:
        readings.append(LogValue(value, host, step if isinstance(step, int) else None, line))


def _host(note: dict[str, Any]) -> int:
    host = note.get("host")
    return host if isinstance(host, int) else 0


def _readings(note: dict[str, Any]) -> Iterator[LogValue]:
    columns = (note.get(key) for key in ("values", "steps", "lines", "at", "ranks"))
    for item, step, line, at_s, rank in zip_longest(*(one if isinstance(one, list) else [] for one in columns)):
        value = as_number(item)
        if value is not None:
            yield LogValue(
                value,
                _host(note),
                int(step) if isinstance(step, int | float) else None,
                int(line) if isinstance(line, int | float) else None,
                as_number(at_s),
                rank if isinstance(rank, int) else None,
            )
