"""The server's own figures while it is under load: `/metrics`, once a second, into a file of the attempt."""

import asyncio
import time
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec

from seatrial.drive.serving.client import Client, wait_for
from seatrial.drive.serving.openai import OpenAiClient

EVERY_S = 1.0
LIMIT_S = 5.0


class Scrape:
    """Samples while the block lasts, the first when it begins and the last when it ends. One that has none is asked
    once."""

    def __init__(self, client: Client, path: str, into: Path) -> None:
        self._client = client if isinstance(client, OpenAiClient) and path else None
        self._path, self._into = path, into
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self.said = {"samples": 0, "why": "" if self._client else "not asked for"}

    async def __aenter__(self) -> "Scrape":
        if self._client is not None:
            self._task = asyncio.create_task(self._sample(self._client))
        return self

    async def __aexit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        if self._task is not None:
            await self._task

    async def _sample(self, client: OpenAiClient) -> None:
        begin_s = time.monotonic()
        with self._into.open("wb") as file:
            last = False
            while not last:
                last = self._over.is_set()
                at_s = time.monotonic() - begin_s
                status, data = await client.get(self._path, LIMIT_S)
                if status != 200:
                    self.said["why"] = f"GET {self._path} answered {status or 'nothing'}"
                    return
                self._write(file, at_s, data)
                if not last:
                    await wait_for(self._over, EVERY_S)

    def _write(self, file: BinaryIO, at_s: float, data: bytes) -> None:
        self.said["samples"] = int(self.said["samples"]) + 1
        file.write(msgspec.json.encode({"at_s": round(at_s, 3), "values": parse_metrics(data)}) + b"\n")


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
