"""Secrets are replaced in all that leaves a job, also when one is cut in two: by the way its bytes arrive, by
the end of the job in the middle of it, or by colours and other things that are not seen."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Iterable, List, Tuple

from .escapes import UNSEEN, UNSEEN_TEXT, Seen, all_visible, unfinished

MASK = "•••"
SHORTEST_LINE = 4  # of a secret of several lines; a closing bracket alone is no secret
SHORTEST_START = 4  # of a secret whose end never came
MOST_HELD = 64 << 10  # bytes beyond the longest secret that wait for the rest of one


class Mask:
    """Replaces each secret by MASK; longer ones first, so that one inside another leaves no rest."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = {part for value in secrets for part in parts(value)}
        values |= {form for value in values for form in encoded(value)}
        ordered = sorted(values, key=len, reverse=True)
        self.values: List[bytes] = [value.encode("utf-8", "surrogateescape") for value in ordered]
        visible = sorted({UNSEEN_TEXT.sub("", value) or value for value in ordered}, key=len, reverse=True)
        self._text = re.compile("|".join(map(re.escape, visible))) if visible else None

    def text(self, text: str) -> str:
        if self._text is None:
            return text
        visible = Seen(text, UNSEEN_TEXT)
        return visible.replaced([found.span() for found in self._text.finditer(visible.plain)], MASK, len(text))

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

    def stream(self, exact: bool = False) -> "StreamMask":
        """`exact`: for a file, which is whole, and which is not shown without what is unseen in it."""
        return StreamMask(self.values, exact)


def encoded(value: str) -> List[str]:
    """How a secret looks where tools write it in another form: in JSON, in a URL, in HTML, in base64 and hex."""
    import base64  # these are for jobs with secrets: a zygote starts sooner, and is smaller, without them
    import html
    from urllib.parse import quote

    data = value.encode("utf-8", "surrogateescape")
    forms = [json.dumps(value)[1:-1], quote(data, safe=""), quote(data), html.escape(value), data.hex()]
    return [*forms, base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode().rstrip("=")]


def parts(value: str) -> List[str]:
    """What is masked of a secret: all of it, and each of its lines, for they may appear one by one."""
    lines = [line.strip() for line in value.splitlines()]
    return [part for part in [value, *lines] if part == value or len(part) >= SHORTEST_LINE] if value else []


class StreamMask:
    """Masks a stream of bytes that comes in pieces. What may be the start of a secret waits for the next piece."""

    def __init__(self, values: List[bytes], exact: bool = False) -> None:
        self._exact = exact
        self._values = values
        if not exact:
            self._values = sorted({UNSEEN.sub(b"", value) or value for value in values}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._values))) if values else None
        self._longest = max(map(len, values)) if values else 0
        self._held = b""
        self.found = False  # a secret, so far

    def feed(self, data: bytes) -> bytes:
        if self._pattern is None:
            return data
        data = self._held + data
        visible = Seen(data, None if self._exact or all_visible(data) else UNSEEN)
        if not self._exact and unfinished(data) < len(data):
            visible = Seen(data[: unfinished(data)], UNSEEN)
        keep_from = self._possible_start(visible.plain)
        spans: List[Tuple[int, int]] = []
        for found in self._pattern.finditer(visible.plain):
            if found.start() >= keep_from:
                break
            spans.append(found.span())
            keep_from = max(keep_from, found.end())  # a whole secret is never split to wait for another
        cut = visible.at(keep_from) if keep_from < len(visible.plain) else len(data)
        self._held = data[cut:]
        self.found = self.found or bool(spans)
        masked = visible.replaced(spans, MASK.encode(), cut) + data[len(visible.data) : cut]
        return masked if len(self._held) <= self._longest + MOST_HELD else masked + self.flush()

    def flush(self) -> bytes:
        """What still waits, when nothing more will come."""
        held, self._held = self._held, b""
        if self._pattern is None:
            return held
        visible = Seen(held, None if self._exact else UNSEEN)
        if not self._exact and len(visible.plain) >= SHORTEST_START:
            return MASK.encode()
        spans = [found.span() for found in self._pattern.finditer(visible.plain)]
        self.found = self.found or bool(spans)
        return visible.replaced(spans, MASK.encode(), len(held))

    def _possible_start(self, data: bytes) -> int:
        """Where the longest end of `data` begins that a secret begins with."""
        for size in range(min(self._longest - 1, len(data)), 0, -1):
            end = data[-size:]
            if any(len(value) > size and value.startswith(end) for value in self._values):
                return len(data) - size
        return len(data)
