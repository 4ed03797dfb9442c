"""Reads metrics from JSON files by path: `a.b.0` is item 0 of `b` of `a`."""

from __future__ import annotations

import contextlib
import json
import math
import re
from typing import IO, Any, Dict, List, Tuple, Union

from .series import to_json

ABSENT = object()
_TEXT_CHARACTERS = 500
_LINE_BYTES = 16 << 20


class UnreadableFile(Exception):
    """A file that is not in the expected format. The text names the problem, and its position if known."""


class Bounded:
    """Limits how much is read: a compressed file may be far larger than it looks."""

    def __init__(self, file: IO[bytes], most_bytes: int) -> None:
        self._file = file
        self._left = most_bytes

    def _count(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise UnreadableFile("not read: too large when unpacked")
        return data

    def read(self) -> bytes:
        return self._count(self._file.read(self._left + 1))

    def readline(self, size: int) -> bytes:
        return self._count(self._file.readline(size))


def whole_number(text: str) -> Union[int, float]:
    """Long integers become floats, which are precise enough: parsing a million digits would take hours."""
    return int(text) if len(text) < 19 else float(text)


DECODER = json.JSONDecoder(parse_int=whole_number)


def _decode(data: bytes) -> Any:
    try:
        return DECODER.decode(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UnreadableFile("not UTF-8 at byte %d" % error.start) from None
    except RecursionError:
        raise UnreadableFile("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise UnreadableFile("not JSON: %s at line %d column %d" % (error.msg, error.lineno, error.colno)) from None


def read_json_keys(file: Bounded, keys: List[str]) -> Dict[str, Any]:
    """Returns {"values": {key: number, text or None}}. Of duplicate keys, the last value is used."""
    data = _decode(file.read())
    return {"values": {key: _plain(find_key(data, key.split("."))) for key in keys}}


def read_json_lines(file: Bounded, keys: List[str]) -> Dict[str, Any]:
    """Returns the last value of each key in a file with one JSON object per line. A truncated last line, left by a
    writer that was stopped, is ignored unless it is all there is."""
    last: Dict[str, Any] = dict.fromkeys(keys, ABSENT)
    broken = ""
    for number, line in enumerate(iter(lambda: file.readline(_LINE_BYTES), b""), 1):
        if broken:
            raise UnreadableFile(broken)
        if not line.strip():
            continue
        try:
            record = _decode(line.strip())
        except UnreadableFile as error:
            broken = "line %d: %s" % (number, error)
            continue
        found = {key: find_key(record, key.split(".")) for key in keys}
        last.update({key: value for key, value in found.items() if value is not ABSENT})
    if broken and all(value is ABSENT for value in last.values()):
        raise UnreadableFile(broken)
    return {"values": {key: _plain(value) for key, value in last.items()}}


def find_key(data: Any, parts: List[str]) -> Any:
    """Returns the value at a path of keys. A key may contain dots: the longest existing key is used."""
    if not parts:
        return data
    if isinstance(data, list):
        index = parts[0][1:] if parts[0].startswith("-") else parts[0]
        if not index.isascii() or not index.isdigit() or len(index) > 9 or int(index) > len(data):
            return ABSENT
        place = int(parts[0])
        return find_key(data[place], parts[1:]) if -len(data) <= place < len(data) else ABSENT
    if isinstance(data, dict):
        for size in range(len(parts), 0, -1):
            key = ".".join(parts[:size])
            if key in data:
                return find_key(data[key], parts[size:])
    return ABSENT


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value[:_TEXT_CHARACTERS]
    if isinstance(value, float) and not math.isfinite(value):
        return to_json(value)
    return value if isinstance(value, (int, float)) else None


MOST_NUMBERS = 10_000


def read(data: bytes, options: Dict[str, Any]) -> Dict[str, Any]:
    """A named reader: every number in a JSON text is a metric, named by its path. The text may be among other lines,
    such as warnings; the last one that starts at the beginning of a line is used."""
    text = data.decode("utf-8", "replace")
    found: Any = ABSENT
    position = 0
    for start in re.finditer(r"^[ \t]*[{\[]", text, re.M):
        if start.start() >= position:
            with contextlib.suppress(ValueError, RecursionError):
                found, position = DECODER.raw_decode(text, start.end() - 1)
    if found is ABSENT:
        raise ValueError("no JSON found")
    metrics: Dict[str, float] = {}
    waiting: List[Tuple[str, Any]] = [("", found)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, (dict, list)):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [("%s.%s" % (path, name) if path else str(name), item) for name, item in items]
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            metrics[path] = float(value)
            if len(metrics) > MOST_NUMBERS:
                raise ValueError("more than %d numbers found" % MOST_NUMBERS)
    return {"metrics": dict(sorted(metrics.items()))}
