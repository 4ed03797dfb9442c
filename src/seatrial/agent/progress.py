"""Whether a training makes progress: its steps, how long they take here, and since when there was no new one."""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, Optional

RECENT = 101  # intervals that the median is taken of
LEAST_INTERVALS = 2


class Progress:
    """A stall is no new step for `factor` times the median time between steps, at least `least_s`.

    It is never told before `steps` steps (the first ones compile). Steps that arrive together, because a program's
    output is buffered, count as one arrival: the time between arrivals is what is measured, so that a full buffer every
    minute is no stall. A step number that is not the last one of its host is a new step, also a lower one: many
    programs count anew in each epoch."""

    def __init__(self, stall: Optional[Dict[str, Any]]) -> None:
        self.steps = 0
        self.last_step: Optional[int] = None
        self.off = stall is None  # nothing more to wait for
        self._factor = float((stall or {}).get("factor") or 10.0)
        self._least_s = float((stall or {}).get("least_s") or 0.0)
        self._first = int((stall or {}).get("steps") or 0)
        self._of_host: Dict[int, int] = {}
        self._intervals: Deque[float] = deque(maxlen=RECENT)
        self._arrived_s: Optional[float] = None  # since when there was no new step

    def saw(self, host: int, number: Optional[int], now_s: Optional[float]) -> None:
        """A line of a step; without a number each counts as one."""
        if number is not None:
            if self._of_host.get(host) == number:
                return
            self._of_host[host] = number
            self.last_step = number
        self.passed(1, now_s)

    def passed(self, count: int, now_s: Optional[float]) -> None:
        self.steps += count
        if not count or now_s is None or self.steps <= self._first:
            return
        if self._arrived_s is not None and now_s > self._arrived_s:
            self._intervals.append(now_s - self._arrived_s)
        self._arrived_s = now_s

    @property
    def limit_s(self) -> Optional[float]:
        """How long the next step may take; None: not known yet."""
        if self.off or self._arrived_s is None or len(self._intervals) < LEAST_INTERVALS:
            return None
        ordered = sorted(self._intervals)
        middle = len(ordered) // 2
        median_s = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
        return max(self._factor * median_s, self._least_s)

    def deadline_s(self) -> Optional[float]:
        limit_s = self.limit_s
        return None if limit_s is None or self._arrived_s is None else self._arrived_s + limit_s

    def idle_s(self, now_s: float) -> float:
        return 0.0 if self._arrived_s is None else now_s - self._arrived_s
