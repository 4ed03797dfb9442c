"""The route to a port of a job: waits until something answers there, and measures what it adds to each answer."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable

from seatrial.targets.protocol import Endpoint, TargetError

ANSWER_S = 180.0  # for something to answer: on a busy node a program may need minutes to begin
_TRY_S = 10.0  # beyond the 5 s after which a lost question for a name is asked again
AGAIN_S = 0.2
CLOSED_S = 1.0  # a route that leads nowhere closes a connection about at once
LEAST_TRIPS, MOST_TRIPS, TRIPS_S = 5, 100, 2.0  # round trips, and the time for them
NO_SERVER = frozenset({502, 503, 504})  # a gateway's way to say that it does not reach what is behind it

# What is wrong; empty: it answers.
_Attempt = Callable[[], Awaitable[str]]


async def until_answered(attempt: _Attempt, what: str, within_s: float = ANSWER_S) -> None:
    until_s = time.monotonic() + within_s
    while True:
        problem = f"no answer in {_TRY_S:g} s"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TRY_S):
                problem = await attempt()
        if not problem:
            return
        if time.monotonic() > until_s:
            raise TargetError(f"{what} does not answer, after {within_s:g} s: {problem}")
        await asyncio.sleep(AGAIN_S)


async def measured(address: str, route: str, trip: Callable[[], Awaitable[float]], *, tls: bool = False) -> Endpoint:
    """With the median and the 99th percentile of what a round trip takes: the least that the route adds."""
    times: list[float] = []
    until_s = time.monotonic() + TRIPS_S
    while len(times) < MOST_TRIPS and (len(times) < LEAST_TRIPS or time.monotonic() < until_s):
        times.append(await trip())
    times.sort()
    return Endpoint(address, route, times[len(times) // 2], times[math.ceil(0.99 * len(times)) - 1], tls)


async def connection(address: str) -> float:
    """Open one; the seconds that it takes, which are those of one round trip."""
    host, _, port = address.rpartition(":")
    begun_s = time.perf_counter()
    _, writer = await asyncio.open_connection(host, int(port))
    taken_s = time.perf_counter() - begun_s
    writer.close()
    return taken_s


async def accepts(address: str) -> str:
    try:
        await connection(address)
    except OSError as error:
        return str(error)
    return ""


async def stays_open(address: str, through: asyncio.Event) -> str:
    """Of a route that accepts every connection itself: whether one is kept, before and once it is `through`."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    reading, opening = asyncio.create_task(reader.read(1)), asyncio.create_task(through.wait())
    try:
        await asyncio.wait({reading, opening}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({reading}, timeout=CLOSED_S)
        closed = reading.done() and (reading.exception() is not None or not reading.result())
        return "connections to it are closed at once" if closed else ""
    finally:
        reading.cancel()
        opening.cancel()
        await asyncio.gather(reading, opening, return_exceptions=True)
        writer.close()


async def gateway_leads_on(url: str) -> str:
    """Whether what is behind an ingress answers, whatever it says. Nothing is sent that anybody could misuse: the
    certificate is of no matter here."""
    import aiohttp

    try:
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False, allow_redirects=False) as answer:
            return f"it says {answer.status} {answer.reason}" if answer.status in NO_SERVER else ""
    except (aiohttp.ClientError, OSError) as error:
        return str(error)


async def opened_inside(address: str, route: str) -> Endpoint:
    """Of an address that leads straight there, as that of a Service does for the pods of its cluster."""
    await until_answered(lambda: accepts(address), address)
    return await measured(address, route, lambda: connection(address))
