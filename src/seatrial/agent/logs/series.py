"""The figures of one name on one host, as a log gives them: all are counted, enough are kept, noted in batches."""

from __future__ import annotations

from typing import AbstractSet, Any, Dict, List, Optional

from .figures import all_to_json, to_json

FULL = 10_000  # are kept one by one; after that every second, fourth, ... of
MORE = 250  # further ones each


class ValueSeries:
    """What is not finite, or no number, or of a step that is `wanted`, is kept whatever the count (as long as there are
    not more than FULL of those)."""

    def __init__(self, name: str, host: int, wanted: AbstractSet[int] = frozenset()) -> None:
        self.name = name
        self.host = host
        self.wanted = wanted
        self.count = 0
        self.kept = 0
        self.unread = 0  # that were no numbers
        self.first: Optional[float] = None
        self.last: Optional[float] = None
        self.last_line: Optional[int] = None
        self.last_step: Optional[int] = None
        self._stride = 1
        self._stride_ends = FULL
        self._odd = 0
        self._of_wanted = 0  # that are kept for that alone
        self._steps: List[Optional[int]] = []
        self._values: List[Optional[float]] = []
        self._lines: List[int] = []
        self._at: List[float] = []
        self._ranks: List[Optional[int]] = []

    @property
    def thinned(self) -> bool:
        return self._stride > 1

    @property
    def waiting(self) -> int:
        return len(self._values)

    def until_due(self) -> int:
        """How many to pass over before one is to be kept."""
        return -self.count % self._stride

    def passed(self, count: int) -> None:
        """So many that are surely finite numbers, and are not kept."""
        self.count += count

    def add(
        self, value: Optional[float], line: int, step: Optional[int], at_s: Optional[float], rank: Optional[int] = None
    ) -> None:
        keep = self.count % self._stride == 0
        if self.count == 0:
            self.first = value
        self.count += 1
        self.last, self.last_line, self.last_step = value, line, step
        if value is None or value - value != 0.0:  # which it is of every number but nan and the infinities
            self.unread += value is None
            self._odd += 1
            keep = keep or self._odd < FULL
        if keep:
            self._keep(value, line, step, at_s, rank)
            if self.kept - self._of_wanted >= self._stride_ends:
                self._stride *= 2
                self._stride_ends += MORE
        else:
            self.keep_wanted(value, line, step, at_s)

    def keep_wanted(self, value: Optional[float], line: int, step: Optional[int], at_s: Optional[float]) -> None:
        """One that has been counted, or will be, and is kept only if its step is wanted."""
        if step in self.wanted and self._of_wanted < FULL:
            self._of_wanted += 1
            self._keep(value, line, step, at_s)

    def _keep(
        self, value: Optional[float], line: int, step: Optional[int], at_s: Optional[float], rank: Optional[int] = None
    ) -> None:
        self.kept += 1
        self._ranks.append(rank)
        self._steps.append(step)
        self._values.append(value)
        self._lines.append(line)
        if at_s is not None:
            self._at.append(round(at_s, 3))

    def note(self) -> Dict[str, Any]:
        """What has been kept since the last note. `at` is empty where it is not known when a line was written."""
        made: Dict[str, Any] = {
            "note": "values",
            "name": self.name,
            "host": self.host,
            "steps": self._steps,
            "values": all_to_json(self._values),
            "lines": self._lines,
            "at": self._at,
        }
        if any(rank is not None for rank in self._ranks):
            made["ranks"] = self._ranks
        self._steps, self._values, self._lines, self._at, self._ranks = [], [], [], [], []
        return made

    def result(self) -> Dict[str, Any]:
        return {
            "count": self.count,
            "kept": self.kept,
            "unread": self.unread,
            "first": to_json(self.first) if self.count else None,
            "last": to_json(self.last) if self.count else None,
            "last_line": self.last_line,
            "last_step": self.last_step,
        }
