"""One load, or one stage of a search: every request begins when it is to begin, whatever became of those before."""

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

from seatrial.drive.arrivals import offsets
from seatrial.drive.driver import Driver
from seatrial.drive.serving.client import Client
from seatrial.drive.serving.load.figures import summarize_load
from seatrial.drive.serving.load.prompts import requests_of
from seatrial.drive.serving.load.requests import Timed, make_sender
from seatrial.job.load import LoadSummary, LoadWork
from seatrial.job.serving import ServingWork

_LEAD_S = 0.05  # before the first one begins
_STOP_S = 2.0
CUT = "cut"  # the error of a request that was not waited for


async def run_load(
    driver: Driver, work: ServingWork, load: LoadWork, client: Client, again: bool
) -> tuple[LoadSummary, list[Timed]]:
    times = offsets(load.arrivals, load.requests, load.seconds, load.seed)
    sender = make_sender(client, load)
    made: dict[int, Any] = {}
    prepared = []
    for request in requests_of(load, work.questions, len(times)):
        if id(request) not in made:
            made[id(request)] = sender.prepare(request)
        prepared.append(made[id(request)])
    offering = Offering(driver, times, lambda number, timed, done: sender.send(prepared[number], timed, done))
    cpu_s = time.process_time()
    gc.collect()
    gc.freeze()  # a collection of all that was prepared would be a pause in the middle
    try:
        cut = await offering.run()
    finally:
        gc.unfreeze()
    cpu_s = time.process_time() - cpu_s
    timed = [one for one in offering.timed if one.begun_s]
    for one in timed:
        if not one.end_s:  # the driver was told to end before its answer had come
            one.end_s, one.error = time.monotonic(), CUT
    return summarize_load(load, timed, cpu_s, offering.most_in_flight, cut, again), timed


class Offering:
    """Begins each request at its time. One timer is set at a time, for whatever comes next."""

    def __init__(
        self, driver: Driver, times: Sequence[float], send: Callable[[int, Timed, Callable[[Timed], None]], None]
    ) -> None:
        self._driver, self._send = driver, send
        self._loop = asyncio.get_running_loop()
        begin_s = time.monotonic() + _LEAD_S
        self.timed = [Timed(begin_s + at_s) for at_s in times]
        self.most_in_flight = 0
        self._in_flight = self._next = 0
        self._over = asyncio.Event()
        self._stopped = False

    async def run(self) -> bool:
        """Until the last has ended; whether the driver was told to end before."""
        self._begin_due()
        stop = asyncio.create_task(self._driver.stopping.wait())
        over = asyncio.create_task(self._over.wait())
        reports = asyncio.create_task(self._report())
        try:
            await asyncio.wait([stop, over], return_when=asyncio.FIRST_COMPLETED)
            if not self._over.is_set():
                self._stopped = True
                await asyncio.wait([over], timeout=_STOP_S)
        finally:
            for task in (stop, over, reports):
                task.cancel()
        return self._stopped

    def _begin_due(self) -> None:
        if self._stopped:
            return
        now_s = time.monotonic()
        while self._next < len(self.timed) and self.timed[self._next].intended_s <= now_s:
            one = self.timed[self._next]
            one.begun_s = now_s
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
            self._send(self._next, one, self._finished)
            self._next += 1
            now_s = time.monotonic()
        if self._next < len(self.timed):
            self._loop.call_at(self._loop.time() + self.timed[self._next].intended_s - now_s, self._begin_due)

    def _finished(self, timed: Timed) -> None:
        self._in_flight -= 1
        if self._next == len(self.timed) and self._in_flight == 0:
            self._over.set()

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(5.0)
            self._driver.progress(f"load: {self._next} of {len(self.timed)} begun, {self._in_flight} in flight")
