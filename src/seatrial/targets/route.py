"""The route to a job's port: waits until the port answers and measures the latency that the route adds."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable

from seatrial.targets.protocol import Endpoint, TargetError
from seatrial.targets.tasks import end_tasks

ANSWER_S = 180.0  # limit for the first answer: on a busy node a program may need minutes to start
_TRY_S = 10.0  # longer than the 5 s after which a lost DNS query is repeated
AGAIN_S = 0.2
CLOSED_S = 1.0  # a route without a server behind it closes a connection sooner than this
LEAST_TRIPS, MOST_TRIPS, TRIPS_S = 5, 100, 2.0  # round trips, and the time for them
NO_SERVER = frozenset({502, 503, 504})  # the gateway cannot reach its backend

_Attempt = Callable[[], Awaitable[str]]  # returns the problem; empty if the port answers


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
            raise TargetError(f"{what} did not answer within {within_s:g} s: {problem}")
        await asyncio.sleep(AGAIN_S)


async def measured(address: str, route: str, trip: Callable[[], Awaitable[float]], *, tls: bool = False) -> Endpoint:
    """Endpoint with the median and 99th percentile of the route's round-trip time, the least latency that it adds."""
    times: list[float] = []
    until_s = time.monotonic() + TRIPS_S
    while len(times) < MOST_TRIPS and (len(times) < LEAST_TRIPS or time.monotonic() < until_s):
        times.append(await trip())
    times.sort()
    found = Endpoint(address)
    found.route, found.tls = route, tls
    found.overhead_s, found.overhead_p99_s = times[len(times) // 2], times[math.ceil(0.99 * len(times)) - 1]
    return found


async def connection(address: str) -> float:
    """Opens a connection and returns how long that took in seconds, which is one round trip."""
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
    """For a route that accepts every connection itself: the problem if it closes one before or soon after `through`
    is set."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    reading, opening = asyncio.create_task(reader.read(1)), asyncio.create_task(through.wait())
    try:
        await asyncio.wait({reading, opening}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({reading}, timeout=CLOSED_S)
        closed = reading.done() and (reading.exception() is not None or not reading.result())
        return "connections are closed immediately" if closed else ""
    finally:
        await end_tasks(reading, opening)
        writer.close()


async def gateway_leads_on(url: str) -> str:
    """The problem if the backend of an ingress does not answer; any answer counts. The certificate is not verified:
    nothing confidential is sent."""
    import aiohttp

    try:
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False, allow_redirects=False) as answer:
            return f"status {answer.status} {answer.reason}" if answer.status in NO_SERVER else ""
    except (aiohttp.ClientError, OSError) as error:
        return str(error)


async def opened_inside(address: str, route: str) -> Endpoint:
    """Endpoint of an address that is reachable directly, such as that of a Service from pods of its cluster."""
    await until_answered(lambda: accepts(address), address)
    return await measured(address, route, lambda: connection(address))
