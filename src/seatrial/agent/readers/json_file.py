"""Reads metrics from JSON files by path: `a.b.0` is item 0 of `b` of `a`."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections import Counter
from typing import Any, Dict, List, Protocol, Tuple, Union

from .series import to_json

ABSENT = object()
_TEXT_CHARACTERS = 500
_LINE_BYTES = 16 << 20
MOST_WARNINGS = 20


class ByteSource(Protocol):
    def read(self) -> bytes: ...

    def readline(self, size: int) -> bytes: ...


class UnreadableFile(Exception):
    """A file that is not in the expected format. The text names the problem, and its position if known."""


def _decoder(twice: List[str]) -> json.JSONDecoder:
    def pairs(found: List[Tuple[str, Any]]) -> Dict[str, Any]:
        made = dict(found)
        if len(made) < len(found) and len(twice) < MOST_WARNINGS:
            twice.append(Counter(name for name, _ in found).most_common(1)[0][0])
        return made

    return json.JSONDecoder(object_pairs_hook=pairs, parse_int=whole_number)


def whole_number(text: str) -> Union[int, float]:
    """Long integers become floats, which are precise enough: parsing a million digits would take hours."""
    return int(text) if len(text) < 19 else float(text)


def _decode(decoder: json.JSONDecoder, data: bytes) -> Any:
    try:
        return decoder.decode(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UnreadableFile("not UTF-8 at byte %d" % error.start) from None
    except RecursionError:
        raise UnreadableFile("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise UnreadableFile("not JSON: %s at line %d column %d" % (error.msg, error.lineno, error.colno)) from None


def read_json_keys(file: ByteSource, keys: List[str]) -> Dict[str, Any]:
    """Returns {"values": {key: number, text or None}, "missing": [keys], "warnings": [...]}."""
    twice: List[str] = []
    data = _decode(_decoder(twice), file.read())
    return _found({key: find_key(data, key.split(".")) for key in keys}, twice)


def read_json_lines(file: ByteSource, keys: List[str]) -> Dict[str, Any]:
    """Returns the last value of each key in a file with one JSON object per line, and how many there were. A truncated
    last line, left by a writer that was stopped, is only reported."""
    twice: List[str] = []
    decoder = _decoder(twice)
    last: Dict[str, Any] = dict.fromkeys(keys, ABSENT)
    counts = dict.fromkeys(keys, 0)
    number, broken = 0, ""
    while True:
        line = file.readline(_LINE_BYTES)
        if not line:
            break
        number += 1
        if broken:
            raise UnreadableFile(broken)
        if not line.strip():
            continue
        try:
            record = _decode(decoder, line.strip())
        except UnreadableFile as error:
            broken = "line %d: %s" % (number, error)
            continue
        for key in keys:
            value = find_key(record, key.split("."))
            if value is not ABSENT:
                last[key], counts[key] = value, counts[key] + 1
    if broken and not any(counts.values()):
        raise UnreadableFile(broken)
    made = _found(last, twice)
    made["counts"] = counts
    if broken:
        made["warnings"].append("the last line is cut off: " + broken)
    return made


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


def _found(raw: Dict[str, Any], twice: List[str]) -> Dict[str, Any]:
    warnings = ["duplicate key %r; the last value is used" % name[:100] for name in twice]
    for key, value in raw.items():
        if isinstance(value, (list, dict)):
            warnings.append(
                "%s is %s (expected a number)" % (key, "a list" if isinstance(value, list) else "an object")
            )
    missing = [key for key, value in raw.items() if value is ABSENT]
    return {"values": {key: _plain(value) for key, value in raw.items()}, "missing": missing, "warnings": warnings}


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return to_json(value)
    if isinstance(value, str):
        return value[:_TEXT_CHARACTERS]
    return value if isinstance(value, (int, float)) else None


MOST_NUMBERS = 10_000


def read(data: bytes, options: Dict[str, Any]) -> Dict[str, Any]:
    """A named reader: every number in a JSON text is a metric, named by its path. The text may be among other lines,
    such as warnings; the last one that starts at the beginning of a line is used."""
    text = data.decode("utf-8", "replace")
    decoder = json.JSONDecoder(parse_int=whole_number)
    found: Any = ABSENT
    position = 0
    for start in re.finditer(r"^[ \t]*[{\[]", text, re.M):
        if start.start() >= position:
            with contextlib.suppress(ValueError, RecursionError):
                found, position = decoder.raw_decode(text, start.end() - 1)
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
