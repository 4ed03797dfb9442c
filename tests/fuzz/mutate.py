"""Makes bad files of good ones: first their structure is changed (keys dropped, values swapped, other types, huge
numbers, nesting), then their bytes. The same random numbers make the same file."""

import copy
import json
import random
import re
import zlib
from collections.abc import Callable
from typing import Any

import yaml

Change = Callable[[bytes, random.Random], bytes]

# Tokens that no Python value becomes when it is written: put into the text in place of a marked string.
_RAW = [
    "NaN", "Infinity", "-Infinity", "1e999", "-1e308", "1e-400", "9" * 25, "9" * 400, "9" * 5000, "-0", "01", "0x10",
    '"\\ud800"', '"\\u0000"', "[" * 60 + "]" * 60, "[" * 150 + "]" * 150, '{"a":' * 800 + "1" + "}" * 800,
    "[" * 100_000, "tru", "", "}", ",",
]  # fmt: skip
_VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 2**64, 10**30, 0.5, -0.0, 1e308, 5e-324, "", " ", "0", "-1",
    "nan", "null", "true", "a" * 10_000, "\x00", "\x1b[31m", "\u202e", "\ufeff", "é漢🛳", "../../etc/passwd", "/",
    "${x}", "${",
    "{{ 7*7 }}", "<script>", "%s%n", "2026-13-45T99:99:99Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999+14:00",
    "1e999s", "10000000000000h", "99999999999999999999Gi", "https://[::1", "(a+)+$", "[", "*", "**/*", "secret:x",
    [], {}, [[]], [None], {"": None}, {"a": {"b": {"c": []}}}, ["a", 1, None, {}], list(range(200)),
]  # fmt: skip
_BYTES = [
    b"\xff",
    b"\x00",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n",
    b"\t",
    b'"',
    b"\\",
    b"{",
    b"[",
    b"}",
]
_YAML = [
    b"&a [*a]", b"*a", b"!!python/object/apply:os.system [echo]", b"!!binary \xff", b"<<: *a", b"? [", b"- - - -",
    b"|\n", b"%YAML 9.9", b"---\n", b"...\n", b"\t", b"'", b'"', b": :", b"!!float .inf", b"0o777", b"1_000",
    b"12:30:45",
    b"&a {b: &b [*b, *a]}", b"{" * 200, b"- " * 300, b"#", b"\xe2\x80\xa8",
]  # fmt: skip
_LOG = [
    b"\x1b[31m", b"\r", b"\x00", b"\xff", b"loss: nan", b"loss: 1e999", b"loss: -", b"step 99999999999999999999",
    b"\n" * 50,
    b"x" * 100_000, b"[rank99999]: ", b"Traceback (most recent call last):\n", b"  File \"a.py\", line 9\n" * 40,
    b"0 " * 30_000, b"\xe2\x80\xa8", b"a" * 40 + b"!", b"2026-11-17T02:03:04.000000005Z ", b"\x1f\x8b\x08\x00",
]  # fmt: skip

_HTTP = [
    b"-5\r\n", b"ffffffffffffffff\r\n", b"0\r\n\r\n", b"Content-Length: -1\r\n", b"Content-Length: 99999999999\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: gzip\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 3_000,
    b"HTTP/1.1 \xb2\xb2\xb2 OK\r\n\r\n", b"Connection: close\r\n", b"X: " + b"y" * 300_000, b"HTTP/9.9 200\r\n\r\n",
]  # fmt: skip


def http_text(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.choice((0, 1, 2, 4))):
        data = _insert(data, rng.choice(_HTTP), rng)
    return plain_bytes(data, rng) if rng.random() < 0.5 else data


def json_text(data: bytes, rng: random.Random) -> bytes:
    """A file of JSON."""
    return _bytes(_json(data, rng), rng)


def json_lines(data: bytes, rng: random.Random, seal: Callable[[bytes], bytes] | None = None) -> bytes:
    """A file of lines of JSON; `seal` makes a changed line look as if it was written so."""
    lines = data.splitlines(keepends=True)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        at = rng.randrange(len(lines))
        match rng.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(rng.randrange(len(lines)), lines[at])
            case 2:
                other = rng.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                lines[at] = _json(lines[at].rstrip(b"\n"), rng) + b"\n"
        if not lines:
            return b""
    if seal is not None:
        return b"".join(seal(line) for line in lines)
    return _bytes(b"".join(lines), rng)


def yaml_text(data: bytes, rng: random.Random) -> bytes:
    """A file of YAML."""
    if rng.random() < 0.7:
        tree = yaml.safe_load(data)
        for _ in range(rng.choice((1, 1, 2, 4))):
            tree = _change(tree, rng, raw=False)
        data = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).encode("utf-8", "surrogatepass")
    if rng.random() < 0.3:
        data = _insert(data, rng.choice(_YAML), rng)
    if rng.random() < 0.15:
        lines = data.splitlines(keepends=True)
        at = rng.randrange(len(lines))
        lines[at] = b" " * rng.randrange(1, 5) + lines[at]
        data = b"".join(lines)
    return _bytes(data, rng)


def heavy_yaml(data: bytes, rng: random.Random) -> bytes:
    """A file of YAML, often with a value that is nested deeply, or an alias that stands for many values."""
    data = yaml_text(data, rng)
    values = list(re.finditer(rb"(?<=: )[^\s{}\[\],&*!|>'\"]+", data))
    if not values or rng.random() < 0.5:
        return data
    at = rng.choice(values)
    depth = rng.choice((3, 9, 49, 60, 1_000, 40_000))
    match rng.randrange(4):
        case 0:
            head, value = b"", b"[" * depth + b"]" * depth
        case 1:
            head, value = b"", b"{a: " * depth + b"1" + b"}" * depth
        case 2:
            head = b"".join(
                b"b%d: &b%d [%s]\n" % (n, n, b",".join([b"*b%d" % (n - 1) if n else b"x"] * 9)) for n in range(9)
            )
            value = b"*b%d" % rng.randrange(9)
        case _:
            head = b"b0: &b0 {a: 1, b: 2}\n"
            head += b"".join(
                b"b%d: &b%d {<<: [%s]}\n" % (n, n, b",".join([b"*b%d" % (n - 1)] * 9)) for n in range(1, 9)
            )
            value = b"*b%d" % rng.randrange(9)
    return head + data[: at.start()] + value + data[at.end() :]


def log_text(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 2, 5))):
        data = _insert(data, rng.choice(_LOG), rng)
    return _bytes(data, rng)


def plain_bytes(data: bytes, rng: random.Random) -> bytes:
    """A file of any form."""
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        data = _bytes(data, rng, always=True)
    return data


def seal_journal(line: bytes) -> bytes:
    """A line of a journal with the checksum of what is in it."""
    body = re.sub(rb',"crc":"[0-9a-f]{8}"}\n?$', b"}", line.rstrip(b"\n"))
    return b'%s,"crc":"%08x"}\n' % (body[:-1], zlib.crc32(body))


def seal_plan(data: bytes) -> bytes:
    """The same for a plan."""
    body = data.rpartition(b',\n "crc": "')[0] + b"\n}"
    return b'%s,\n "crc": "%08x"\n}' % (body.removesuffix(b"\n}"), zlib.crc32(body))


# ---- structure


def _json(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.1:
        return data
    try:
        tree = json.loads(data)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            tree = _change(tree, rng, raw=True)
        text = json.dumps(tree, ensure_ascii=rng.random() < 0.5)
    except (ValueError, RecursionError):  # it was changed before, and is bad enough
        return data
    return _RAW_MARK.sub(lambda found: _RAW[int(found[1])], text).encode("utf-8", "surrogatepass")


_RAW_MARK = re.compile(r'"@raw(\d+)@"')


def _change(tree: Any, rng: random.Random, raw: bool) -> Any:
    """One change somewhere in the tree, at places near the top as often as at deep ones."""
    tree = copy.deepcopy(tree)
    at, key = None, None
    node = tree
    while isinstance(node, dict | list) and node and (at is None or rng.random() < 0.8):
        at = node
        key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        node = node[key]
    if at is None:
        return _value(rng, raw)
    match rng.randrange(8):
        case 0:
            del at[key]
        case 1 if isinstance(at, dict):
            at[rng.choice(("", "x", "name", "kind", "\x00", str(key).upper(), f"{key} ", "é"))] = at.pop(key)
        case 2 if isinstance(at, dict):
            at[rng.choice(("x", "name", "", "version", "event"))] = _value(rng, raw)
        case 3 if isinstance(at, list):
            at.insert(rng.randrange(len(at) + 1), _value(rng, raw))
        case 4:
            other = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
            at[key], at[other] = at[other], at[key]
        case 5:
            at[key] = rng.choice([[node], {"a": node}, [node] * 3, str(node), tree if not raw else [node, node]])
            at[key] = copy.deepcopy(at[key]) if at[key] is not tree else "itself"
        case _:
            at[key] = _value(rng, raw)
    return tree


def _value(rng: random.Random, raw: bool) -> Any:
    if raw and rng.random() < 0.3:
        return f"@raw{rng.randrange(len(_RAW))}@"
    return copy.deepcopy(rng.choice(_VALUES))


# ---- bytes


def _bytes(data: bytes, rng: random.Random, always: bool = False) -> bytes:
    if not data or (not always and rng.random() < 0.75):
        return data
    at = rng.randrange(len(data))
    match rng.randrange(6):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        case 2:
            end = min(len(data), at + rng.choice((1, 4, 64, 1024)))
            return data[:at] + data[end:]
        case 3:
            end = min(len(data), at + rng.choice((1, 4, 64, 1024)))
            return data[:end] + data[at:end] * rng.choice((1, 2, 50)) + data[end:]
        case 4:
            return data[:at] + rng.randbytes(rng.choice((1, 2, 8, 64))) + data[at:]
        case _:
            return _insert(data, rng.choice(_BYTES), rng)


def _insert(data: bytes, part: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    if rng.random() < 0.5:  # where a line begins
        at = data.rfind(b"\n", 0, at) + 1
    return data[:at] + part + data[at:]
