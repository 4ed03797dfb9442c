"""The driver of the kind `asking`: each thing is asked once, by whichever life of it comes to it first."""

import asyncio
import hashlib
import os

import aiohttp

from seatrial.kinds.driver import Driver

AT_ONCE = 4


async def drive(driver: Driver) -> None:
    if driver.work["reveal"]:
        reveal(driver, os.environ[driver.work["reveal"]])
    things = iter(driver.to_do(f"thing-{number}" for number in range(driver.work["count"])))

    async def ask(session: aiohttp.ClientSession, address: str) -> None:
        for thing in things:
            if driver.stopping.is_set():
                return
            driver.begin(thing)
            async with session.get(f"http://{address}/{thing}") as answer:
                driver.finish(thing, text=await answer.text())
            await asyncio.sleep(driver.work["pause_s"])

    async with driver.endpoint("http") as address, aiohttp.ClientSession() as session:
        await asyncio.gather(*(ask(session, address) for _ in range(AT_ONCE)))


def reveal(driver: Driver, value: str) -> None:
    """Everywhere that a driver can write; and what proves that it has the value."""
    print(f"the value is {value}", flush=True)
    driver.note("revealed", value=value, digest=hashlib.sha256(value.encode()).hexdigest())
    (driver.files / f"named-{value}").write_text(f"in a file: {value}\n")
