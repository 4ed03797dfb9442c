"""The server's own metrics while it is under load: `/metrics`, once a second, into a file of the attempt."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import msgspec

from seatrial.kinds.driver import Driver, DriverError, wait_for
from seatrial.kinds.serving.driver.client import Client
from seatrial.kinds.serving.driver.http import Connections
from seatrial.kinds.serving.driver.openai import OpenAiClient
from seatrial.kinds.serving.work import LoadWork, ServingWork

METRICS = "load-metrics.jsonl"
_EVERY_S = 1.0
_LIMIT_S = 5.0


class Scraped(msgspec.Struct):
    samples: int = 0
    why: str = ""  # there are none, or no more


@contextlib.asynccontextmanager
async def scraping(driver: Driver, work: ServingWork, load: LoadWork, client: Client) -> AsyncIterator[Scraped]:
    """Samples while the block lasts, the first before it begins and the last after it. A server that has none is asked
    once."""
    found = Scraped()
    async with contextlib.AsyncExitStack() as stack:
        try:
            connections = await _connections(stack, driver, work, load, client)
        except DriverError as error:
            found.why = str(error)
            yield found
            return
        begin_s = time.monotonic()
        file = stack.enter_context((driver.files / METRICS).open("wb"))

        async def sample() -> None:
            if found.why:
                return
            at_s = time.monotonic() - begin_s
            status, data = await connections.get(load.metrics, _LIMIT_S)
            if status != 200:
                found.why = f"GET {load.metrics} answered {status or 'nothing'}"
                return
            found.samples += 1
            file.write(msgspec.json.encode({"at_s": round(at_s, 3), "values": parse_metrics(data)}) + b"\n")

        async def repeat() -> None:
            while not await wait_for(over, _EVERY_S):
                await sample()

        await sample()
        over = asyncio.Event()
        task = asyncio.create_task(repeat())
        try:
            yield found
        finally:
            over.set()
            await task
        await sample()


async def _connections(
    stack: contextlib.AsyncExitStack, driver: Driver, work: ServingWork, load: LoadWork, client: Client
) -> Connections:
    """How the server is asked for its own metrics. On a port of their own over plain HTTP, as readiness is asked: the
    token is for the port where requests go. Raises DriverError, with why it is not asked."""
    if not load.metrics:
        raise DriverError("not asked for")
    if not load.metrics_port:
        if isinstance(client, OpenAiClient):
            return client.connections
        raise DriverError(f"its port speaks gRPC; write `metrics: :3000{load.metrics}` for another one")
    if work.url:
        url = f"http://{urlsplit(work.url).hostname}:{load.metrics_port}"
    else:
        address = await stack.enter_async_context(driver.endpoint(load.metrics_port))
        url = f"{'https' if address.tls else 'http'}://{address}"
    connections = Connections(url, None, {})
    stack.push_async_callback(connections.close)
    return connections


def parse_metrics(data: bytes) -> dict[str, float]:
    """Prometheus' text form: a value by name and labels. Buckets of histograms are left out."""
    found = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, _, value = line.rpartition(" ")
        if name and not line.startswith("#") and "_bucket" not in name:
            try:
                found[name] = float(value)
            except ValueError:
                continue
    return found
