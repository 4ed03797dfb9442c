"""Reads untrusted data from a disk, a job or a server.

Every error is `Unreadable`: invalid JSON, another schema, not UTF-8, nested too deeply, too large numbers, a file that
is too large, or a pipe. `kubernetes/queries.py` does the same for responses of a server."""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

_T = TypeVar("_T")
JsonObject = dict[str, Any]  # free-form: defined by the step, the kind, the target or the storage
_MOST_BYTES = 256 << 20  # of a file
MOST_LINE_BYTES = 8 << 20  # of a line
_MOST_DEPTH = 100  # our own code walks nested data recursively
_TOO_DEEP = f"nested too deeply (limit {_MOST_DEPTH})"
MOST_DIGITS = 300  # a longer integer does not fit a float
_LITTLE_BYTES = 2 * _MOST_DEPTH  # smaller data cannot exceed either limit
_NO_BRACKET = bytes(byte for byte in range(256) if byte not in b"[]{}")
_NO_MARK = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_AS_ZERO = bytes(ord("0") if byte in b"0123456789" else 0 for byte in range(256))
_LONG_NUMBER = b"0" * (MOST_DIGITS + 1)
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class Unreadable(Exception):
    """The data is invalid; the message says why, and is complete for users."""


def decode(data: bytes | str, form: type[_T]) -> _T:
    """Decodes JSON as `form`. Raises Unreadable."""
    try:
        raw = data.encode() if isinstance(data, str) else data
        made: _T = _decoder(form).decode(raw)  # type: ignore[arg-type]  # a type is hashable
    except UnicodeError as error:
        raise Unreadable(f"not UTF-8: {error}") from None
    except msgspec.DecodeError as error:
        raise Unreadable(str(error)) from None
    except RecursionError:
        raise Unreadable(_TOO_DEEP) from None
    if len(raw) > _LITTLE_BYTES:
        _check_extent(raw)
    return made


def convert(value: Any, form: type[_T]) -> _T:
    """Converts decoded data to `form`. Raises Unreadable."""
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise Unreadable(str(error)) from None


def read_json(path: Path | str, form: type[_T], most_bytes: int = _MOST_BYTES) -> _T:
    """Reads a JSON file. Raises Unreadable, and OSError if it is missing or not accessible."""
    return decode(read_regular(path, most_bytes, follow=True), form)


def read_regular(path: Path | str, most_bytes: int = _MOST_BYTES, follow: bool = False, start_bytes: int = 0) -> bytes:
    """Reads a file from `start_bytes` on. Raises like `read_json`; a larger file is not read."""
    with opened_regular(path, follow) as descriptor:
        size = os.fstat(descriptor).st_size
        if size > most_bytes:
            raise Unreadable(f"too large: {size:,} bytes (limit {most_bytes:,})")
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(start_bytes)
            return file.read(max(0, size - start_bytes))


def lines(file: BinaryIO, most_bytes: int = MOST_LINE_BYTES) -> Iterator[bytes]:
    """The lines of an untrusted file; a line longer than `most_bytes` comes in pieces, to limit memory."""
    while line := file.readline(most_bytes):
        yield line


@contextmanager
def opened_regular(path: Path | str, follow: bool = False) -> Iterator[int]:
    """Opens a file that a job could have replaced by a pipe, or by a link unless `follow`: raises OSError then, and
    never blocks."""
    links = 0 if follow else os.O_NOFOLLOW
    descriptor = os.open(path, os.O_RDONLY | links | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        yield descriptor
    finally:
        os.close(descriptor)


@lru_cache(maxsize=64)
def _decoder(form: Any) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(form)


def _check_extent(data: bytes) -> None:
    """Checks the nesting and the numbers of decoded data."""
    if _LONG_NUMBER in data.translate(_AS_ZERO) and _LONG_NUMBER in _STRING.sub(b"", data).translate(_AS_ZERO):
        raise Unreadable(f"a number has too many digits (limit {MOST_DIGITS})")
    if len(data.translate(None, _NO_BRACKET)) <= 2 * _MOST_DEPTH:
        return
    # Keep only brackets outside strings; each round removes the innermost ones. Two adjacent quotes are a string
    # without brackets, or the end of one string and the start of the next.
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in data else data
    marks = plain.translate(None, _NO_MARK).replace(b'""', b"")
    brackets = b"".join(marks.split(b'"')[::2])
    for _ in range(_MOST_DEPTH):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if not brackets:
            return
    raise Unreadable(_TOO_DEEP)


@cache
def boot_id() -> str:
    """The id of the machine's last boot, because process ids are reused; empty without /proc."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def process_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat after the name in brackets, the state first; empty if the process does not exist or
    is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []
    return fields if fields[0] not in (b"Z", b"X") else []


def process_start(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if it does not exist or is a zombie."""
    fields = process_fields(pid)
    return int(fields[19]) if fields else None
