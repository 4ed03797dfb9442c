"""Parses numbers as programs print them, such as `1,234.5`; `1_000`, `3.2s` and `fast` are not numbers."""

from __future__ import annotations

import math
import re
from collections import deque
from typing import AbstractSet, Any, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple

_AROUND = b" \t\r'\"`,;:()[]{}<>|="
_BEFORE = rb"[%s]*(?:(?:tensor|[Aa]rray|np\.\w+|jnp?\.\w+)\()?" % re.escape(_AROUND)
_NUMBER = rb"([-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|inf(?:inity)?|nan))"
_AFTER = rb"(?:[%s.]*|,.*\))" % re.escape(_AROUND)
_TOKEN = re.compile(_BEFORE + _NUMBER + _AFTER, re.IGNORECASE)
# Thousands separators as in 1,234,567.8, but not the commas of a list.
_THOUSANDS = re.compile(rb"(?<=\d),(?=\d{3}(?:,\d{3})*(?!\d|,))")
_LONGEST = 400  # longest text that is parsed as a number
_PLAIN = b"0123456789.+-" + _AROUND
_OVERFLOW = re.compile(rb"[eE]\+?\d{3}")


def number(token: Optional[bytes]) -> Optional[float]:
    """Returns the number, also `nan` and infinities; None if the text is not a number."""
    if token is None or len(token) > _LONGEST or b"_" in token:  # only Python accepts an underscore in a number
        return None
    try:
        return float(token.rstrip(b","))
    except ValueError:
        found = _TOKEN.fullmatch(_THOUSANDS.sub(b"", token))
        return None if found is None else float(found.group(1))


def whole(value: Optional[float]) -> Optional[int]:
    """Returns a step number; None if the value is not whole."""
    return int(value) if value is not None and math.isfinite(value) and value == int(value) else None


def all_plain(tokens: Sequence[bytes]) -> bool:
    """Whether all tokens are certainly finite numbers. Tests thousands at once by their letters."""
    joined = b" ".join(tokens)
    letters = joined.translate(None, _PLAIN)
    if letters and (letters.translate(None, b"eE") or _OVERFLOW.search(joined)):
        return False
    return b"" not in tokens


def to_json(value: Optional[float]) -> Any:
    """The value in records: text for numbers that JSON does not have, and `?` for text that is not a number."""
    if value is None:
        return "?"
    if math.isfinite(value):
        return int(value) if value == int(value) and abs(value) < 1e15 else value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


# The values of one metric on one host: all are counted, a sample is kept and noted in batches.


FULL = 10_000  # metrics that are all kept; after that every second, fourth, ...
MORE = 250  # kept at each of these strides


class Metric(NamedTuple):
    """A value from a log; None if the text is not a number."""

    value: Optional[float] = None
    line: Optional[int] = None
    step: Optional[int] = None
    at_s: Optional[float] = None
    rank: Optional[int] = None


class ValueSeries:
    """Metrics that are not finite, not numbers, or of a `wanted` step are always kept (at most FULL of them)."""

    def __init__(self, name: str, host: int, wanted: AbstractSet[int] = frozenset()) -> None:
        self.name = name
        self.host = host
        self.wanted = wanted
        self.count = 0
        self.kept = 0
        self.unread = 0  # texts that are not numbers
        self.first: Optional[float] = None
        self.last = Metric()
        self.stride = 1  # 1: all are kept
        self._stride_ends = FULL
        self._odd = 0
        self._of_wanted = 0  # kept only because their step is wanted
        self.waiting: List[Metric] = []  # kept since the last note

    def until_due(self) -> int:
        """How many metrics to skip before the next one to keep."""
        return -self.count % self.stride

    def add(self, metric: Metric) -> None:
        keep, value = self.count % self.stride == 0, metric.value
        if self.count == 0:
            self.first = value
        self.count += 1
        self.last = metric
        if value is None or value - value != 0.0:  # true only for nan and infinities
            self.unread += value is None
            self._odd += 1
            keep = keep or self._odd < FULL
        if not keep and metric.step in self.wanted and self._of_wanted < FULL:
            keep, self._of_wanted = True, self._of_wanted + 1
        if keep:
            self.kept += 1
            self.waiting.append(metric)
            if self.kept - self._of_wanted >= self._stride_ends:
                self.stride *= 2
                self._stride_ends += MORE

    def note(self) -> Dict[str, Any]:
        """Returns the metrics kept since the last note. `at` is empty if the times are unknown."""
        kept, self.waiting = self.waiting, []
        made: Dict[str, Any] = {
            "note": "values",
            "name": self.name,
            "host": self.host,
            "steps": [metric.step for metric in kept],
            "values": [to_json(metric.value) for metric in kept],
            "lines": [metric.line for metric in kept],
            "at": [round(metric.at_s, 3) for metric in kept if metric.at_s is not None],
        }
        if any(metric.rank is not None for metric in kept):
            made["ranks"] = [metric.rank for metric in kept]
        return made

    def result(self) -> Dict[str, Any]:
        return {
            "count": self.count,
            "kept": self.kept,
            "unread": self.unread,
            "first": to_json(self.first) if self.count else None,
            "last": to_json(self.last.value) if self.count else None,
            "last_line": self.last.line,
            "last_step": self.last.step,
        }


# Progress of a training job: its steps, how long they take, and the time since the last one.


RECENT = 101  # intervals for the median
LEAST_INTERVALS = 2


class HostProgress:
    """Progress of one host. Steps that arrive together from a buffer count as one arrival, and the time between
    arrivals is measured, so that a program that flushes once a minute is not a stall."""

    def __init__(self, factor: float, least_s: float, first: int) -> None:
        self.steps = 0
        self.last_step: Optional[int] = None
        self.over = False  # nothing more to wait for
        self._factor, self._least_s, self._first = factor, least_s, first
        self._intervals: Deque[float] = deque(maxlen=RECENT)
        self._arrived_s: Optional[float] = None  # time of the last new step
        self._limit_s: Optional[float] = None

    def passed(self, count: int, now_s: Optional[float]) -> None:
        self.steps += count
        if not count or now_s is None or self.steps <= self._first:
            return
        if self._arrived_s is not None and now_s > self._arrived_s:
            self._intervals.append(now_s - self._arrived_s)
            self._limit_s = None
        self._arrived_s = now_s

    @property
    def limit_s(self) -> float:
        """How long the next step may take. Valid only if there is a deadline."""
        if self._limit_s is None:
            from statistics import median  # only for jobs with a stall limit

            self._limit_s = max(self._factor * median(self._intervals), self._least_s)
        return self._limit_s

    def deadline_s(self) -> Optional[float]:
        if self.over or self._arrived_s is None or len(self._intervals) < LEAST_INTERVALS:
            return None
        return self._arrived_s + self.limit_s

    def idle_s(self, now_s: float) -> float:
        return 0.0 if self._arrived_s is None else now_s - self._arrived_s


class StepProgress:
    """Detects stalls: a host without a new step for `factor` times its median time between steps, at least `least_s`.

    A host is watched only after `steps` steps, because the first ones compile; a host without steps never stalls. Any
    change of the step number is a new step, also a lower number: many programs restart counting in each epoch.
    """

    def __init__(self, stall: Optional[Dict[str, Any]]) -> None:
        self._off = stall is None
        self._factor = float((stall or {}).get("factor") or 10.0)
        self._least_s = float((stall or {}).get("least_s") or 0.0)
        self._first = int((stall or {}).get("steps") or 0)
        self._hosts: Dict[int, HostProgress] = {}

    @property
    def steps(self) -> int:
        return sum(host.steps for host in self._hosts.values())

    def of(self, host: int) -> HostProgress:
        if host not in self._hosts:
            self._hosts[host] = HostProgress(self._factor, self._least_s, self._first)
        return self._hosts[host]

    def saw(self, host: int, number: Optional[int], now_s: Optional[float]) -> None:
        """Counts a line with a step; without a number, each line is a step."""
        progress = self.of(host)
        if number is not None:
            if progress.last_step == number:
                return
            progress.last_step = number
        progress.passed(1, now_s)

    def over(self, host: Optional[int]) -> None:
        """Expect no more steps from a host; None: from any."""
        if host is None:
            self._off = True
        else:
            self.of(host).over = True

    def next(self) -> Optional[Tuple[float, int]]:
        """Returns the earliest stall deadline and its host."""
        if self._off:
            return None
        due = [(host.deadline_s(), number) for number, host in self._hosts.items()]
        return min(((at_s, number) for at_s, number in due if at_s is not None), default=None)
