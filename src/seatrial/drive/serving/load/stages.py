"""The load of a driver: one, or a search for the highest rate that keeps the bounds. What is measured as a whole begins
anew in a driver that was killed, and says so."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from seatrial.drive.driver import Driver
from seatrial.drive.search import Try, search_rate
from seatrial.drive.serving.client import Client
from seatrial.drive.serving.load.requests import Timed
from seatrial.drive.serving.load.run import run_load
from seatrial.drive.serving.load.scrape import scraping
from seatrial.job.load import LOAD, LoadSummary, LoadWork, broken_load_bounds
from seatrial.job.serving import ServingWork

REQUESTS = "load-requests.jsonl"


async def offer_load(driver: Driver, work: ServingWork, load: LoadWork, client: Client) -> None:
    if LOAD in driver.finished:
        return
    again = LOAD in driver.unknown
    driver.begin(LOAD)
    async with scraping(driver, work, load, client) as scrape:
        if load.peak:
            said = await _search(driver, work, load, client, again)
        else:
            summary, timed = await run_load(driver, work, load, client, again)
            write_requests(driver.files / REQUESTS, timed, "wb")
            said = {"summary": summary}
    driver.finish(LOAD, **said, scrape=scrape)


async def _search(driver: Driver, work: ServingWork, load: LoadWork, client: Client, again: bool) -> dict[str, Any]:
    """The highest rate that keeps the bounds, and what was measured at each that was tried."""
    stages: list[dict[str, Any]] = []

    async def attempt(rate: float) -> Try[LoadSummary]:
        arrivals = msgspec.structs.replace(load.arrivals, rate=rate)
        driver.progress(f"load: {rate:.4g}/s")
        summary, timed = await run_load(driver, work, msgspec.structs.replace(load, arrivals=arrivals), client, again)
        write_requests(driver.files / REQUESTS, timed, "ab" if stages else "wb", rate)
        doubt = "the driver was late" if summary.lag_s > load.lag_s else ""
        tried = Try(rate, broken_load_bounds(load.bounds, summary), doubt, summary)
        small = msgspec.structs.replace(summary, series=[])
        stages.append({"rate": rate, "broken": tried.broken, "doubt": doubt, "summary": small})
        return tried

    found = await search_rate(load.arrivals.rate, load.most_rate, attempt, driver.stopping.is_set)
    return {
        "stages": stages,
        "peak": found.low,
        "broke_at": found.high,
        "doubt": found.doubt,
        "summary": found.holds,
    }


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
