"""Servers of a known capacity in simulated time, and the search for it with the client's own decisions."""

import heapq
import math
from collections.abc import Callable, Sequence

from seatrial.kinds.arrivals import Arrivals, offsets
from seatrial.kinds.search import WARMUP, Searched, Try, search_rate
from seatrial.kinds.serving.driver.load import CLOSE
from seatrial.kinds.serving.driver.load_requests import Timed
from seatrial.kinds.serving.driver.offering import Window
from seatrial.kinds.serving.load_work import LoadWork

CAPACITY = 50.0  # requests a second, of each server
Server = Callable[[Sequence[float]], list[float]]  # when each request ends, by when it begins


def fifo(starts: Sequence[float]) -> list[float]:
    """One after the other."""
    ends: list[float] = []
    for start_s in starts:
        ends.append(max(start_s, ends[-1] if ends else 0.0) + 1 / CAPACITY)
    return ends


def sharing(starts: Sequence[float]) -> list[float]:
    """All at once, each at its share of the speed."""
    ends = [math.inf] * len(starts)
    done, now_s, begun = 0.0, 0.0, 0  # `done`: of a request that is there from the beginning
    due: list[tuple[float, int]] = []
    while begun < len(starts) or due:
        end_s = now_s + (due[0][0] - done) * len(due) if due else math.inf
        if begun < len(starts) and starts[begun] <= end_s:
            done += (starts[begun] - now_s) / len(due) if due else 0.0
            now_s = starts[begun]
            heapq.heappush(due, (done + 1 / CAPACITY, begun))
            begun += 1
        else:
            done, number = heapq.heappop(due)
            ends[number] = now_s = end_s
    return ends


def batching(starts: Sequence[float], size: int = 16) -> list[float]:
    """A batch of those that wait, up to `size`, takes the same time however full it is."""
    ends: list[float] = []
    now_s = 0.0
    while len(ends) < len(starts):
        now_s = max(now_s, starts[len(ends)])
        taken = sum(start_s <= now_s for start_s in starts[len(ends) : len(ends) + size])
        now_s += size / CAPACITY
        ends += [now_s] * taken
    return ends


def continuous(starts: Sequence[float], slots: int = 64) -> list[float]:
    """So many at a time, each for the same time, as engines with continuous batching."""
    free, ends = [0.0] * slots, []
    for start_s in starts:
        ends.append(max(free[0], start_s) + slots / CAPACITY)
        heapq.heapreplace(free, ends[-1])
    return ends


SERVERS: dict[str, Server] = {
    "queue": fifo,
    "shared": sharing,
    "batches of 16": batching,
    "64 slots": continuous,
}


async def find_peak(server: Server, shape: str, first: float, seconds: float, seed: int) -> Searched[float]:
    """As `find: peak` without bounds; the result of a rate is the length of its window in seconds."""

    async def attempt(rate: float, longer: bool) -> Try[float]:
        arrivals = Arrivals(shape, rate, every_s=seconds * WARMUP)
        window = Window(LoadWork(arrivals, seconds=seconds, peak=True))
        while True:
            now_s = window.seconds
            starts = offsets(arrivals, None, now_s, seed)
            timed = [
                Timed(start_s, begun_s=start_s, end_s=end_s if end_s <= now_s else 0.0)
                for start_s, end_s in zip(starts, server(starts), strict=True)
            ]
            if not window.extend(timed, 0.0):
                assert window.flow is not None
                behind = window.flow.falls_behind
                return Try(rate, [behind] if behind else [], "", now_s)

    return await search_rate(first, 1e5, attempt, lambda: False, CLOSE)
