"""Secrets are masked wherever they would appear, also where something that nobody sees is in the middle of one."""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

MASK = "•••"
# Escape sequences (a title or a link of at most 4,096 characters), control characters, marks without width. Who shows a
# text takes them out, and what they split is whole again.
UNSEEN = re.compile(
    r"\x1b(?:\[[0-?]{0,256}[ -/]{0,16}[@-~]|\][^\x07\x1b\n\r]{0,4096}(?:\x07|\x1b\\)|[ -/]{0,4}[0-Z\\^-~])"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
    "|[\x80-\x84\x86-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufffe\uffff]"
)
SHORTEST_LINE = 4  # of a secret of several lines; a closing bracket alone is no secret


class Mask:
    """Replaces each secret by MASK; longer ones first, so that one inside another leaves no rest."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        parts = {part for value in secrets for part in _parts(value)}
        forms = {form for part in parts for form in _forms(part)}
        values = sorted({UNSEEN.sub("", form) or form for form in forms}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, values))) if values else None

    def text(self, text: str) -> str:
        if self._pattern is None:
            return text
        if not UNSEEN.search(text):
            return self._pattern.sub(MASK, text)
        visible = [at for start, end in _pieces(text) for at in range(start, end)]  # indices of visible characters
        made, position = [], 0
        for found in self._pattern.finditer(UNSEEN.sub("", text)):
            made += [text[position : visible[found.start()]], MASK]
            position = visible[found.end() - 1] + 1
        return "".join([*made, text[position:]])

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


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Where each piece that is seen starts and ends."""
    start = 0
    for found in UNSEEN.finditer(text):
        yield start, found.start()
        start = found.end()
    yield start, len(text)


def _forms(value: str) -> list[str]:
    """As it is, and as tools write it: in JSON, in a URL, in HTML, in base64 and hex."""
    data = value.encode("utf-8", "surrogateescape")
    encoded = [json.dumps(value)[1:-1], quote(data, safe=""), quote(data), html.escape(value), data.hex()]
    return [value, *encoded, base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode().rstrip("=")]


def _parts(value: str) -> list[str]:
    """All of it, and each of its lines, for they may appear one by one."""
    lines = [line.strip() for line in value.splitlines()]
    return [part for part in [value, *lines] if part == value or len(part) >= SHORTEST_LINE] if value else []
