"""Secrets are masked wherever they would appear."""

import re
from collections.abc import Iterable
from typing import Any

MASK = "•••"


class Mask:
    """Replaces each secret by MASK; longer ones first, so that one inside another leaves no rest."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = sorted({value for value in secrets if value}, key=len, reverse=True)
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
