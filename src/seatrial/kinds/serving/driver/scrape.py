"""The server's own metrics while it is under load: `/metrics`, once a second, into a file of the attempt."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import msgspec

from seatrial.kinds.driver import Driver, DriverError, wait_for
from seatrial.kinds.serving.driver.client import Client
from seatrial.kinds.serving.driver.http import Connections, ServerAddress
from seatrial.kinds.serving.driver.openai import OpenAiClient
from seatrial.kinds.serving.work import LoadWork, ServingWork

METRICS = "load-metrics.jsonl"
_EVERY_S = 1.0
_LIMIT_S = 5.0


@contextlib.asynccontextmanager
async def scraping(driver: Driver, work: ServingWork, load: LoadWork, client: Client) -> AsyncIterator[dict[str, Any]]:
    """Samples while the block lasts, the first before it begins and the last after it; how many they were, or why there
    are none. A server that has none is asked once."""
    said: dict[str, Any] = {"samples": 0, "why": ""}
    async with _place(driver, work, load, client) as place:
        if isinstance(place, str):
            said["why"] = place
            yield said
            return
        with (driver.files / METRICS).open("wb") as file:
            scrape = _Scrape(place, load.metrics, file, said)
            await scrape.sample()
            over = asyncio.Event()
            task = asyncio.create_task(scrape.repeat(over))
            try:
                yield said
            finally:
                over.set()
                await task
            await scrape.sample()


class _Scrape:
    def __init__(self, connections: Connections, path: str, file: BinaryIO, said: dict[str, Any]) -> None:
        self._connections, self._path, self._file, self._said = connections, path, file, said
        self._begin_s = time.monotonic()

    async def repeat(self, over: asyncio.Event) -> None:
        while not await wait_for(over, _EVERY_S):
            await self.sample()

    async def sample(self) -> None:
        if self._said["why"]:
            return
        at_s = time.monotonic() - self._begin_s
        status, data = await self._connections.get(self._path, _LIMIT_S)
        if status != 200:
            self._said["why"] = f"GET {self._path} answered {status or 'nothing'}"
            return
        self._said["samples"] += 1
        self._file.write(msgspec.json.encode({"at_s": round(at_s, 3), "values": parse_metrics(data)}) + b"\n")


@contextlib.asynccontextmanager
async def _place(driver: Driver, work: ServingWork, load: LoadWork, client: Client) -> AsyncIterator[Connections | str]:
    """How the server is asked for its own metrics; or why it is not."""
    if not load.metrics:
        yield "not asked for"
    elif load.metrics_port:
        async with contextlib.AsyncExitStack() as stack:
            try:
                place: Connections | str = await _other_port(stack, driver, work, load.metrics_port)
            except DriverError as error:
                place = str(error)
            yield place
    elif isinstance(client, OpenAiClient):
        yield client.connections
    else:
        yield f"its port speaks gRPC; write `metrics: :3000{load.metrics}` for another one"


async def _other_port(stack: contextlib.AsyncExitStack, driver: Driver, work: ServingWork, port: str) -> Connections:
    """Plain HTTP, as readiness is asked. The token is for the port where requests go."""
    if work.url:
        url = f"http://{urlsplit(work.url).hostname}:{port}"
    else:
        address = await stack.enter_async_context(driver.endpoint(port))
        url = f"{'https' if address.tls else 'http'}://{address}"
    connections = Connections(ServerAddress(url, None, {}))
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
