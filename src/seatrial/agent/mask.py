"""Secrets are replaced in all that leaves a job, also when one is cut in two by the way its bytes arrive."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Iterable, List

MASK = "•••"


class Mask:
    """Replaces each secret by MASK; longer ones first, so that one inside another leaves no rest."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = {value for value in secrets if value}
        values |= {json.dumps(value)[1:-1] for value in values}  # as it looks inside a JSON string
        ordered = sorted(values, key=len, reverse=True)
        self.values: List[bytes] = [value.encode("utf-8", "surrogateescape") for value in ordered]
        self._text = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        return self._text.sub(MASK, text) if self._text else text

    def data(self, value: Any) -> Any:
        """Plain data with every text masked, keys too, and with numbers that JSON has no word for as None."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if isinstance(value, dict):
            return {self.text(str(key)): self.data(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.data(item) for item in value]
        return value

    def stream(self) -> "StreamMask":
        return StreamMask(self.values)


class StreamMask:
    """Masks a stream of bytes that comes in pieces. What may be the start of a secret waits for the next piece."""

    def __init__(self, values: List[bytes]) -> None:
        self._values = values
        self._pattern = re.compile(b"|".join(map(re.escape, values))) if values else None
        self._longest = max(map(len, values)) if values else 0
        self._held = b""
        self.found = False  # a secret, so far

    def feed(self, data: bytes) -> bytes:
        if self._pattern is None:
            return data
        data = self._held + data
        keep_from = self._possible_start(data)
        for found in self._pattern.finditer(data):
            if found.start() >= keep_from:
                break
            keep_from = max(keep_from, found.end())  # a whole secret is never split to wait for another
        self._held = data[keep_from:]
        return self._replace(data[:keep_from])

    def flush(self) -> bytes:
        """What still waits, when nothing more will come."""
        held, self._held = self._held, b""
        return self._replace(held)

    def _replace(self, data: bytes) -> bytes:
        if self._pattern is None:
            return data
        masked, count = self._pattern.subn(MASK.encode(), data)
        self.found = self.found or count > 0
        return masked

    def _possible_start(self, data: bytes) -> int:
        """Where the longest end of `data` begins that a secret begins with."""
        for size in range(min(self._longest - 1, len(data)), 0, -1):
            end = data[-size:]
            if any(len(value) > size and value.startswith(end) for value in self._values):
                return len(data) - size
        return len(data)
