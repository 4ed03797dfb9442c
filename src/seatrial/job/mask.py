"""Secrets are masked wherever they would appear."""

import base64
import html
import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

MASK = "•••"
SHORTEST_LINE = 4  # of a secret of several lines; a closing bracket alone is no secret


class Mask:
    """Replaces each secret by MASK; longer ones first, so that one inside another leaves no rest."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        parts = {part for value in secrets for part in _parts(value)}
        values = sorted({form for part in parts for form in _forms(part)}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, values))) if values else None

    def text(self, text: str) -> str:
        return self._pattern.sub(MASK, text) if self._pattern else text

    def data(self, value: Any) -> Any:
        """The same for everything inside plain data, keys too."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.data(key): self.data(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(item) for item in value]
        return value


def _forms(value: str) -> list[str]:
    """As it is, and as tools write it: in JSON, in a URL, in HTML, in base64 and hex."""
    data = value.encode("utf-8", "surrogateescape")
    encoded = [json.dumps(value)[1:-1], quote(data, safe=""), quote(data), html.escape(value), data.hex()]
    return [value, *encoded, base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode().rstrip("=")]


def _parts(value: str) -> list[str]:
    """All of it, and each of its lines, for they may appear one by one."""
    lines = [line.strip() for line in value.splitlines()]
    return [part for part in [value, *lines] if part == value or len(part) >= SHORTEST_LINE] if value else []
