"""Similarity of texts, by embeddings from an OpenAI-compatible endpoint or a local model."""

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from seatrial.extras import install_command
from seatrial.kinds.driver import DriverError
from seatrial.kinds.serving.driver.openai import OpenAiClient
from seatrial.kinds.serving.request import EMBEDDINGS, Mode, Request
from seatrial.kinds.serving.work import Embeddings, ServingWork

_TRIES = 3
PAUSE_S = 0.5
_LIMIT_S = 60.0


class Embedder:
    """Embeds each text only once."""

    def __init__(self, place: Embeddings, token: str) -> None:
        self._source = LocalModel(place.local) if place.local else EmbeddingEndpoint(place, token)
        self._known: dict[str, asyncio.Task[Sequence[float]]] = {}

    async def similarities(self, ones: Sequence[str], others: Sequence[str]) -> list[float]:
        """The similarity of each pair. Raises DriverError."""
        for text in (*ones, *others):
            if text not in self._known:
                self._known[text] = asyncio.ensure_future(self._source.vector(text))
        vectors = await asyncio.gather(*(self._known[text] for text in (*ones, *others)))
        return [cosine(one, other) for one, other in zip(vectors[: len(ones)], vectors[len(ones) :], strict=True)]

    async def close(self) -> None:
        for task in self._known.values():
            task.cancel()
        await self._source.close()


class EmbeddingEndpoint:
    def __init__(self, place: Embeddings, token: str) -> None:
        self._url = f"{place.url.rstrip('/')}{EMBEDDINGS}"
        work = ServingWork(model=place.model, extra={} if place.model else {"model": None})
        self._client = OpenAiClient(work, place.url, token)

    async def close(self) -> None:
        await self._client.close()

    async def vector(self, text: str) -> Sequence[float]:
        """Raises DriverError, because answers cannot be compared without it."""
        body = {"input": [text], "encoding_format": "float"}
        asked = Request((text,), mode=Mode.EMBED, path=EMBEDDINGS, body=body)
        for attempt in range(_TRIES):
            await asyncio.sleep(PAUSE_S * attempt)
            answer = await self._client.ask(asked, False, _LIMIT_S)
            if answer.failure is None:
                return answer.generations[0].vector or ()
            why = answer.failure.text
        raise DriverError(f"cannot get an embedding from {self._url}: {why}")


class LocalModel:
    """A sentence-transformers model in this process, in one thread because more are no faster."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread = ThreadPoolExecutor(1)
        self._model: Any = None

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def vector(self, text: str) -> Sequence[float]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._embed, text)

    def _embed(self, text: str) -> Sequence[float]:
        if self._model is None:
            try:
                from sentence_transformers import SentenceTransformer

                self._model = SentenceTransformer(self._name)
            except ImportError as error:
                command = install_command("embedding")
                raise DriverError(f"{self._name} needs sentence-transformers ({error}); run `{command}`") from error
            except (OSError, ValueError) as error:  # not found, cannot be downloaded, or not a model
                raise DriverError(f"cannot load sentence-transformers model {self._name}: {error}") from error
        return [float(value) for value in self._model.encode(text)]


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Cosine of the angle between two vectors; 0 for a zero vector."""
    if len(one) != len(other):
        raise DriverError(f"embeddings have different lengths: {len(one)} and {len(other)}")
    size = math.sqrt(math.fsum(a * a for a in one)) * math.sqrt(math.fsum(b * b for b in other))
    return math.fsum(a * b for a, b in zip(one, other, strict=True)) / size if size else 0.0
