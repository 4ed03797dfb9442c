"""Secrets are replaced in all that leaves a job, also when one is cut in two by the way its bytes arrive."""

from __future__ import annotations

import base64
import html
import json
import math
import re
from typing import Any, Iterable, List
from urllib.parse import quote

MASK = "•••"
SHORTEST_LINE = 4  # of a secret of several lines; a closing bracket alone is no secret


class Mask:
    """Replaces each secret by MASK; longer ones first, so that one inside another leaves no rest."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = {part for value in secrets for part in parts(value)}
        values |= {form for value in values for form in encoded(value)}
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


def encoded(value: str) -> List[str]:
    """How a secret looks where tools write it in another form: in JSON, in a URL, in HTML, in base64 and hex."""
    data = value.encode("utf-8", "surrogateescape")
    forms = [json.dumps(value)[1:-1], quote(data, safe=""), quote(data), html.escape(value), data.hex()]
    return [*forms, base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode().rstrip("=")]


def parts(value: str) -> List[str]:
    """What is masked of a secret: all of it, and each of its lines, for they may appear one by one."""
    lines = [line.strip() for line in value.splitlines()]
    return [part for part in [value, *lines] if part == value or len(part) >= SHORTEST_LINE] if value else []


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
