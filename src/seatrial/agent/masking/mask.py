"""Replaces secrets in everything that leaves a job, also if one is split: by the way its bytes arrive, by the end of
the job, or by colours and other invisible characters."""

from __future__ import annotations

import math
import os
import re
from functools import lru_cache
from typing import Any, AnyStr, Dict, FrozenSet, Iterable, Iterator, List, Pattern, Tuple

from .escapes import UNSEEN, UNSEEN_TEXT, VisibleText, all_visible, unfinished

# Keys with a value that is a keyword of ours or a known name: `event` of a record, `name` of a metric.
_PLACES = """
    event outcome note state class what pass name pattern entry thing kind step_source cell_type output_type
    gpu_memory_source
"""
PLACES: FrozenSet[str] = frozenset(_PLACES.split())


def _words() -> FrozenSet[str]:
    """Keywords of our records and of notebooks: keys and states. A secret may equal one of them (a password `value`),
    but records must stay readable. Keywords are public, so that they reveal nothing."""
    data: bytes = __spec__.loader.get_data(os.path.join(os.path.dirname(__file__), "words.txt"))  # type: ignore[union-attr]
    lines = data.decode("utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


WORDS = _words()


def texts(value: Any) -> Iterator[str]:
    """Yields every text in plain data, including keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item)


MASK = "•••"
_MOST_DEPTH = 90  # of data; readers of the records accept at most 100
TOO_DEEP = "(nested too deep)"
SHORTEST_START = 4  # of a secret that was cut off
START_BYTES = 3
MOST_HELD = 64 << 10  # bytes beyond the longest secret that are held back


class Mask:
    """Replaces each secret by MASK; longer ones first, so that nothing is left of one that contains another.

    `known`: plain data that readers of the masked text have anyway, such as the steps of the job. Names in it stay
    readable.
    """

    def __init__(self, secrets: Iterable[str] = (), known: Any = None) -> None:
        ordered: List[str] = []
        secrets = [value for value in secrets if value]
        if secrets:
            from .forms import forms, parts  # only if needed: a zygote starts faster and is smaller without

            values = {form for value in secrets for part in parts(value) for form in forms(part)}
            ordered = sorted(values, key=len, reverse=True)
        self.values: List[bytes] = [value.encode("utf-8", "surrogateescape") for value in ordered]
        self._visible = sorted({UNSEEN_TEXT.sub("", value) or value for value in ordered}, key=len, reverse=True)
        self._words = WORDS.union(texts(known)) if ordered else WORDS

    def text(self, text: str) -> str:
        if not self._visible:
            return text
        visible = VisibleText(text, UNSEEN_TEXT)
        return visible.replaced(_spans(self._visible, visible.plain), MASK, len(text))

    def data(self, value: Any, ours: Iterable[str] = ()) -> Any:
        """Masks every text in plain data, including keys, and replaces numbers that JSON cannot represent by None.
        Keywords of our records, and words in `ours`, are kept."""
        return self._masked(value, self._words.union(ours) if ours else self._words)

    def _masked(self, value: Any, words: FrozenSet[str], depth: int = 0) -> Any:
        if depth > _MOST_DEPTH:
            return TOO_DEEP
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if isinstance(value, dict):
            return {
                key if key in words else self.text(str(key)): item
                if key in PLACES and isinstance(item, str) and item in words
                else self._masked(item, words, depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self._masked(item, words, depth + 1) for item in value]
        return value

    def stream(self, exact: bool = False) -> "StreamMask":
        """`exact`: for a complete file, in which invisible characters count."""
        return StreamMask(self.values, exact)


class StreamMask:
    """Masks a stream of bytes. A possible start of a secret is held back until the next piece."""

    def __init__(self, values: List[bytes], exact: bool = False) -> None:
        self._exact = exact
        self._values = values
        if not exact:
            self._values = sorted({UNSEEN.sub(b"", value) or value for value in values}, key=len, reverse=True)
        self._starts: Dict[bytes, List[bytes]] = {}  # by their first bytes, for a quick lookup
        for value in self._values:
            for size in range(1, START_BYTES + 1):
                self._starts.setdefault(value[:size], []).append(value)
        self._longest = max(map(len, values)) if values else 0
        self._held = b""
        self.found = False  # whether a secret was found so far

    def feed(self, data: bytes) -> bytes:
        if not self._values:
            return data
        data = self._held + data
        visible = VisibleText(data, None if self._exact or all_visible(data) else UNSEEN)
        if not self._exact and unfinished(data) < len(data):
            visible = VisibleText(data[: unfinished(data)], UNSEEN)
        keep_from = self._possible_start(visible.plain)
        spans: List[Tuple[int, int]] = []
        for start, end in _spans(self._values, visible.plain):
            if start >= keep_from:
                break
            spans.append((start, end))
            keep_from = max(keep_from, end)  # never split a complete secret to wait for another one
        cut = visible.at(keep_from) if keep_from < len(visible.plain) else len(data)
        self._held = data[cut:]
        self.found = self.found or bool(spans)
        masked = visible.replaced(spans, MASK.encode(), cut) + data[len(visible.data) : cut]
        return masked if len(self._held) <= self._longest + MOST_HELD else masked + self.flush()

    def flush(self) -> bytes:
        """Returns what was held back, at the end of the stream."""
        held, self._held = self._held, b""
        if not self._values:
            return held
        visible = VisibleText(held, None if self._exact else UNSEEN)
        if not self._exact and len(visible.plain) >= SHORTEST_START:
            return MASK.encode()
        spans = _spans(self._values, visible.plain)
        self.found = self.found or bool(spans)
        return visible.replaced(spans, MASK.encode(), len(held))

    def _possible_start(self, data: bytes) -> int:
        """Returns the offset of the longest suffix of `data` that is the start of a secret."""
        for start in range(max(0, len(data) - self._longest + 1), len(data)):
            candidates = self._starts.get(data[start : start + START_BYTES])
            if candidates:
                end = data[start:]
                if any(len(value) > len(end) and value.startswith(end) for value in candidates):
                    return start
        return len(data)


def _spans(values: List[AnyStr], text: AnyStr) -> List[Tuple[int, int]]:
    """Returns the spans of the values, longest first. Most texts have none, which testing one by one shows fastest."""
    present = [value for value in values if value in text]
    if not present:
        return []
    return [found.span() for found in _either(tuple(present)).finditer(text)]


@lru_cache(maxsize=64)
def _either(values: Tuple[AnyStr, ...]) -> Pattern[AnyStr]:
    between: Any = b"|" if isinstance(values[0], bytes) else "|"
    return re.compile(between.join(map(re.escape, values)))
