"""Starts the requests of a load on schedule, or a fixed number at once, and decides how long a rate is offered."""

import asyncio
import math
import time
from collections.abc import Callable

from seatrial.kinds.driver import Driver, wait_for
from seatrial.kinds.search import LONGEST, Flow, measure_flow
from seatrial.kinds.serving.driver.load_metrics import summarize_load
from seatrial.kinds.serving.driver.load_requests import Timed
from seatrial.kinds.serving.load_work import LoadWork

_LEAD_S = 0.05  # before the first request
_STOP_S = 2.0


class Window:
    """How long a rate is offered in a search: until it is clear whether the server keeps up."""

    def __init__(self, load: LoadWork) -> None:
        self._load, self.seconds = load, load.seconds or 0.0
        self._most_s = math.inf
        self.flow: Flow | None = None

    def extend(self, begun: list[Timed], begin_s: float) -> bool:
        """Whether the window must be longer; it is then twice as long."""
        starts = [one.begun_s - begin_s for one in begun]
        ends = [one.end_s - begin_s if one.end_s else math.inf for one in begun]
        self.flow = measure_flow(starts, ends, self.seconds)
        if self.flow is not None:
            self._most_s = min(self._most_s, self.seconds * LONGEST)
            if self.flow.keeps_up is not None or self.seconds >= self._most_s:
                return False
        elif ended := [one for one in begun if one.end_s]:
            so_far = summarize_load(self._load, ended)
            uppers = [bound for bound in self._load.bounds if bound.operator in ("<=", "<")]
            values = [(bound, bound.measured(so_far)) for bound in uppers]
            if any(value is not None and not bound.met_by(value) for bound, value in values):
                return False
        self.seconds *= 2
        return True


class Offering:
    """Starts each request at its scheduled time, with a single timer for the next one; or `at_once` requests, and each
    other one when an earlier one has ended."""

    def __init__(
        self, driver: Driver, send: Callable[[int, Timed, Callable[[Timed], None]], None], at_once: int = 0
    ) -> None:
        self._driver, self._send, self._at_once = driver, send, at_once
        self._loop = asyncio.get_running_loop()
        self._begin_s = 0.0
        self.timed: list[Timed] = []
        self.most_in_flight = 0
        self._in_flight = self.started = 0
        self._complete = False  # no requests are added any more
        self._over = asyncio.Event()
        self._stopped = False

    async def run(self, first: list[Timed], window: Window | None, next_until: Callable[[float], list[Timed]]) -> bool:
        """Runs until the last request has ended. Returns whether the client was stopped before. If the window must be
        longer, `next_until` gives the requests up to its new end. Scheduled times are relative to the beginning."""
        self._begin_s = time.monotonic() + _LEAD_S
        self._add(first)
        stop = asyncio.create_task(self._driver.stopping.wait())
        over = asyncio.create_task(self._over.wait())
        reports = asyncio.create_task(self._report())
        try:
            while window:
                left_s = self._begin_s + window.seconds - time.monotonic()
                stopped = await wait_for(self._driver.stopping, left_s)
                if stopped or not window.extend(self.timed[: self.started], self._begin_s):
                    break
                self._add(next_until(window.seconds))
            self._complete = True
            self._end()
            await asyncio.wait([stop, over], return_when=asyncio.FIRST_COMPLETED)
            if not self._over.is_set():
                self._stopped = True
                await asyncio.wait([over], timeout=_STOP_S)
        finally:
            for task in (stop, over, reports):
                task.cancel()
        return self._stopped

    def _add(self, timed: list[Timed]) -> None:
        for one in timed:
            one.intended_s += self._begin_s
        no_timer = self.started == len(self.timed)
        self.timed += timed
        if no_timer:
            self._begin_due()

    def _begin_due(self) -> None:
        if self._stopped:
            return
        now_s = time.monotonic()
        while self.started < len(self.timed):
            one = self.timed[self.started]
            if self._at_once:
                if self._in_flight >= self._at_once:
                    return
                one.intended_s = now_s
            elif one.intended_s > now_s:
                self._loop.call_at(self._loop.time() + one.intended_s - now_s, self._begin_due)
                return
            one.begun_s = now_s
            self._in_flight += 1
            if self._in_flight > self.most_in_flight:
                self.most_in_flight = self._in_flight
            self._send(self.started, one, self._finished)
            self.started += 1
            now_s = time.monotonic()

    def _finished(self, timed: Timed) -> None:
        self._in_flight -= 1
        if self._at_once:
            self._begin_due()
        self._end()

    def _end(self) -> None:
        if self._complete and self.started == len(self.timed) and self._in_flight == 0:
            self._over.set()

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(5.0)
            self._driver.progress(f"load: {self.started} of {len(self.timed)} started, {self._in_flight} in flight")
