"""How similar two texts are, by the embeddings of any endpoint that speaks OpenAI's protocol."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from seatrial.drive.driver import DriverError
from seatrial.job import Unreadable, decode
from seatrial.job.serving import Embeddings

TRIES = 3
PAUSE_S = 0.5
LIMIT_S = 60.0


class _Vector(msgspec.Struct):
    embedding: list[float]


class _Vectors(msgspec.Struct):
    data: list[_Vector]


class Embedder:
    """Each text is asked for once."""

    def __init__(self, place: Embeddings, token: str) -> None:
        self._url = f"{place.url.rstrip('/')}/v1/embeddings"
        self._model = place.model
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session = aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(LIMIT_S))
        self._known: dict[str, asyncio.Task[list[float]]] = {}

    async def similarities(self, ones: Sequence[str], others: Sequence[str]) -> list[float]:
        """Of each pair. Raises DriverError: without them nothing can be said of the answers."""
        vectors = await asyncio.gather(*map(self._vector, (*ones, *others)))
        return [cosine(one, other) for one, other in zip(vectors[: len(ones)], vectors[len(ones) :], strict=True)]

    async def close(self) -> None:
        for task in self._known.values():
            task.cancel()
        await self._session.close()

    def _vector(self, text: str) -> "asyncio.Task[list[float]]":
        if text not in self._known:
            self._known[text] = asyncio.create_task(self._asked(text))
        return self._known[text]

    async def _asked(self, text: str) -> list[float]:
        body: dict[str, Any] = {"input": [text], "encoding_format": "float"}
        if self._model:
            body["model"] = self._model
        why = ""
        for attempt in range(TRIES):
            await asyncio.sleep(PAUSE_S * attempt)
            try:
                async with self._session.post(self._url, json=body) as answer:
                    data = await answer.read()
                    if answer.status == 200:
                        return decode(data, _Vectors).data[0].embedding
                    why = f"{answer.status}: {data[:200].decode(errors='replace')}"
            except (aiohttp.ClientError, TimeoutError, Unreadable, IndexError) as error:
                why = str(error) or type(error).__name__
        raise DriverError(f"{self._url} gives no embedding of a text: {why}")


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Of the angle between two; 0 for one that is nothing."""
    if len(one) != len(other):
        raise DriverError(f"embeddings of {len(one)} and {len(other)} numbers are not of one model")
    size = math.sqrt(math.fsum(a * a for a in one)) * math.sqrt(math.fsum(b * b for b in other))
    return math.fsum(a * b for a, b in zip(one, other, strict=True)) / size if size else 0.0
