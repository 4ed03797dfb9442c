"""Whether a training makes progress: its steps, how long they take here, and since when there was no new one."""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, Optional, Tuple

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
