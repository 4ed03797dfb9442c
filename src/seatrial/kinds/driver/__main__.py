"""`python -m seatrial.kinds.driver KIND FILE`: what the step `drive` of a job runs."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from seatrial import plugins
from seatrial.job import Unreadable
from seatrial.kinds.driver import Driver, DriverError


def main(arguments: list[str]) -> int:
    kind, path = arguments
    known = plugins.drivers()
    if kind not in known:
        print(f"unknown client kind {kind!r}; known: {', '.join(known) or 'none'}", file=sys.stderr)
        return 2
    driver = Driver.read(Path(path))
    try:
        asyncio.run(_drive(known[kind], driver))
    except (DriverError, Unreadable) as error:
        print("; ".join(str(error).splitlines()), file=sys.stderr)  # the last line is the reason
        return 1
    return 0


async def _drive(drive: Callable[[Driver], Awaitable[None]], driver: Driver) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, driver.stopping.set)
    await drive(driver)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
