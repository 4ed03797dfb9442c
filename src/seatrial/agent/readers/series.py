"""Numbers as programs print them, `1,234.5` too. What is none is not taken for one: `1_000`, `3.2s`, `fast`."""

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
# The commas of 1,234,567.8: groups of three digits to the end of the whole part, and not the items of a list.
_THOUSANDS = re.compile(rb"(?<=\d),(?=\d{3}(?:,\d{3})*(?!\d|,))")
_LONGEST = 400  # characters of what may be a number
_PLAIN = b"0123456789.+-" + _AROUND
_OVERFLOW = re.compile(rb"[eE]\+?\d{3}")


def number(token: Optional[bytes]) -> Optional[float]:
    """None for what is no number. `nan` and the infinities are numbers."""
    if token is None or len(token) > _LONGEST or b"_" in token:  # which Python alone takes for a part of a number
        return None
    try:
        return float(token.rstrip(b","))
    except ValueError:
        found = _TOKEN.fullmatch(_THOUSANDS.sub(b"", token))
        return None if found is None else float(found.group(1))


def whole(value: Optional[float]) -> Optional[int]:
    """A step's number."""
    return int(value) if value is not None and math.isfinite(value) and value == int(value) else None


def all_plain(tokens: Sequence[bytes]) -> bool:
    """Whether every token is surely a finite number: found for thousands at once, by the letters that they lack."""
    joined = b" ".join(tokens)
    letters = joined.translate(None, _PLAIN)
    if letters and (letters.translate(None, b"eE") or _OVERFLOW.search(joined)):
        return False
    return b"" not in tokens


def to_json(value: Optional[float]) -> Any:
    """As records have it: JSON has no word for some numbers, and for what was no number at all there is `?`."""
    if value is None:
        return "?"
    if math.isfinite(value):
        return int(value) if value == int(value) and abs(value) < 1e15 else value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


# The metrics of one name on one host, as a log gives them: all are counted, enough are kept, noted in batches.


FULL = 10_000  # are kept one by one; after that every second, fourth, ... of
MORE = 250  # further ones each


class Metric(NamedTuple):
    """As a log gives it; a `value` of None is no number."""

    value: Optional[float] = None
    line: Optional[int] = None
    step: Optional[int] = None
    at_s: Optional[float] = None
    rank: Optional[int] = None


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
        self.last = Metric()
        self._stride = 1
        self._stride_ends = FULL
        self._odd = 0
        self._of_wanted = 0  # that are kept for that alone
        self._kept: List[Metric] = []  # since the last note

    @property
    def thinned(self) -> bool:
        return self._stride > 1

    @property
    def waiting(self) -> int:
        return len(self._kept)

    def until_due(self) -> int:
        """How many to pass over before one is to be kept."""
        return -self.count % self._stride

    def add(self, metric: Metric) -> None:
        keep, value = self.count % self._stride == 0, metric.value
        if self.count == 0:
            self.first = value
        self.count += 1
        self.last = metric
        if value is None or value - value != 0.0:  # which it is of every number but nan and the infinities
            self.unread += value is None
            self._odd += 1
            keep = keep or self._odd < FULL
        if keep:
            self.kept += 1
            self._kept.append(metric)
            if self.kept - self._of_wanted >= self._stride_ends:
                self._stride *= 2
                self._stride_ends += MORE
        else:
            self.keep_wanted(metric)

    def keep_wanted(self, metric: Metric) -> None:
        """One that has been counted, or will be, and is kept only if its step is wanted."""
        if metric.step in self.wanted and self._of_wanted < FULL:
            self._of_wanted += 1
            self.kept += 1
            self._kept.append(metric._replace(rank=None))

    def note(self) -> Dict[str, Any]:
        """What has been kept since the last note. `at` is empty where it is not known when a line was written."""
        kept, self._kept = self._kept, []
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


# Whether a training makes progress: its steps, how long they take here, and since when there was no new one.


RECENT = 101  # intervals that the median is taken of
LEAST_INTERVALS = 2


class HostProgress:
    """Of one host. Steps that arrive together, because a program's output is buffered, count as one arrival: the time
    between arrivals is what is measured, so that a full buffer every minute is no stall."""

    def __init__(self, factor: float, least_s: float, first: int) -> None:
        self.steps = 0
        self.last_step: Optional[int] = None
        self.over = False  # nothing more to wait for
        self._factor, self._least_s, self._first = factor, least_s, first
        self._intervals: Deque[float] = deque(maxlen=RECENT)
        self._arrived_s: Optional[float] = None  # since when there was no new step
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
        """How long the next step may take. To be asked where there is a deadline."""
        if self._limit_s is None:
            ordered = sorted(self._intervals)
            middle = len(ordered) // 2
            median_s = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
            self._limit_s = max(self._factor * median_s, self._least_s)
        return self._limit_s

    def deadline_s(self) -> Optional[float]:
        if self.over or self._arrived_s is None or len(self._intervals) < LEAST_INTERVALS:
            return None
        return self._arrived_s + self.limit_s

    def idle_s(self, now_s: float) -> float:
        return 0.0 if self._arrived_s is None else now_s - self._arrived_s


class StepProgress:
    """A stall is no new step of one host for `factor` times the median time between its steps, at least `least_s`.

    It is never reported before a host has made `steps` steps (the first ones compile), so a host that tells none is not
    waited for. A step number that is not the last one of its host is a new step, also a lower one: many programs count
    anew in each epoch."""

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
        """A line of a step; without a number each counts as one."""
        progress = self.of(host)
        if number is not None:
            if progress.last_step == number:
                return
            progress.last_step = number
        progress.passed(1, now_s)

    def passed(self, host: int, count: int, now_s: Optional[float]) -> None:
        self.of(host).passed(count, now_s)

    def over(self, host: Optional[int]) -> None:
        """A host has nothing more to do; None: no host has."""
        if host is None:
            self._off = True
        else:
            self.of(host).over = True

    def next(self) -> Optional[Tuple[float, int]]:
        """The host whose next step is due first, and when it is a stall."""
        if self._off:
            return None
        due = [(host.deadline_s(), number) for number, host in self._hosts.items()]
        return min(((at_s, number) for at_s, number in due if at_s is not None), default=None)
