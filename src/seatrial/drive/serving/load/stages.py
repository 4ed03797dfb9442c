"""The load of a driver: one, or a search for the highest rate that keeps the bounds. What is measured as a whole begins
anew in a driver that was killed, and says so."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from seatrial.drive.driver import Driver
from seatrial.drive.serving.client import Client
from seatrial.drive.serving.load.requests import Timed
from seatrial.drive.serving.load.run import run_load
from seatrial.drive.serving.load.scrape import Scrape
from seatrial.job.load import LOAD, LoadSummary, LoadWork, broken_bounds
from seatrial.job.serving import ServingWork

CLOSE = 1.1  # a search ends when the rate that holds and the one that does not are this close
MOST_STAGES = 24
SLOWEST = 16  # so many times slower than the first rate is the last to try
REQUESTS, METRICS = "load-requests.jsonl", "load-metrics.jsonl"


async def offer_load(driver: Driver, work: ServingWork, load: LoadWork, client: Client) -> None:
    if LOAD in driver.finished:
        return
    again = LOAD in driver.unknown
    driver.begin(LOAD)
    async with Scrape(client, load.metrics, driver.files / METRICS) as scrape:
        if load.peak:
            said = await _search(driver, work, load, client, again)
        else:
            summary, timed = await run_load(driver, work, load, client, again)
            write_requests(driver.files / REQUESTS, timed, "wb")
            said = {"summary": summary}
    driver.finish(LOAD, **said, scrape=scrape.said)


async def _search(driver: Driver, work: ServingWork, load: LoadWork, client: Client, again: bool) -> dict[str, Any]:
    """Doubles the rate until the bounds break, halves it until they hold, and then goes between the two."""
    holds: LoadSummary | None = None
    low, high, rate, late = 0.0, 0.0, load.arrivals.rate, False
    stages: list[dict[str, Any]] = []
    while len(stages) < MOST_STAGES and not driver.stopping.is_set():
        arrivals = msgspec.structs.replace(load.arrivals, rate=rate)
        driver.progress(f"load: {rate:.4g}/s")
        summary, timed = await run_load(driver, work, msgspec.structs.replace(load, arrivals=arrivals), client, again)
        write_requests(driver.files / REQUESTS, timed, "ab" if stages else "wb", rate)
        late = summary.lag_s > load.lag_s
        broken = broken_bounds(load.bounds, summary)
        small = msgspec.structs.replace(summary, series=[])
        stages.append({"rate": rate, "broken": broken, "late": late, "summary": small})
        if late:
            break
        if broken:
            high = rate
        else:
            low, holds = rate, summary
        found = high and low and high / low <= CLOSE
        if found or (not high and rate >= load.most_rate) or (not low and rate <= load.arrivals.rate / SLOWEST):
            break
        rate = (low * high) ** 0.5 if low and high else min(rate * 2, load.most_rate) if low else rate / 2
    return {"stages": stages, "peak": low, "broke_at": high, "late": late, "summary": holds}


def write_requests(path: Path, timed: Iterable[Timed], mode: str, rate: float | None = None) -> None:
    """Every request with every stamp, one a line; seconds from the first intended one."""
    with path.open(mode) as file:
        begin_s = None
        for number, one in enumerate(timed):
            begin_s = one.intended_s if begin_s is None else begin_s
            row: dict[str, Any] = {"number": number, **({"rate": rate} if rate is not None else {})}
            for name in ("intended_s", "begun_s", "sent_s", "first_byte_s", "end_s"):
                value = getattr(one, name)
                row[name] = round(value - begin_s, 6) if value else None
            row |= {"tokens": one.tokens, "tokens_s": [round(at_s - begin_s, 6) for at_s in one.stamps]}
            row |= {"counts": one.counts if any(count != 1 for count in one.counts) else [], "error": one.error}
            file.write(msgspec.json.encode(row) + b"\n")
