"""Reads what comes from a disk, a job or a server, none of which can be trusted to hold what was once written there.

Whatever is wrong with it, the error is `Unreadable`: it is no JSON, of another form, not UTF-8, nested deeper or with
larger numbers than anything that we write, a file of an absurd size or no file at all but a pipe. The client of
Kubernetes has the same for answers of a server, in `kubernetes/queries.py`."""

import errno
import os
import re
import stat
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import msgspec

_T = TypeVar("_T")
JsonObject = dict[str, Any]  # free-form: what is in it is up to the step, the kind, the target or the storage
_MOST_BYTES = 256 << 20  # of a file
_MOST_LINE_BYTES = 8 << 20  # of a file of lines
_MOST_DEPTH = 100  # our own code goes through nested data by recursion
_TOO_DEEP = f"it is nested more than {_MOST_DEPTH} deep"
MOST_DIGITS = 300  # a longer integer fits no float
_LITTLE_BYTES = 2 * _MOST_DEPTH  # in which neither has room
_NO_BRACKET = bytes(byte for byte in range(256) if byte not in b"[]{}")
_NO_MARK = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_AS_ZERO = bytes(ord("0") if byte in b"0123456789" else 0 for byte in range(256))
_LONG_NUMBER = b"0" * (MOST_DIGITS + 1)
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class Unreadable(Exception):
    """What was read is not what should be there; the message says why, and is all that a person needs."""


def decode(data: bytes | str, form: type[_T]) -> _T:
    """What these bytes of JSON say, in this form. Raises Unreadable."""
    try:
        raw = data.encode() if isinstance(data, str) else data
        made: _T = _decoder(cast(Hashable, form)).decode(raw)
    except UnicodeError as error:
        raise Unreadable(f"it is not UTF-8: {error}") from None
    except msgspec.DecodeError as error:
        raise Unreadable(str(error)) from None
    except RecursionError:
        raise Unreadable(_TOO_DEEP) from None
    _check_extent(raw)
    return made


def convert(value: Any, form: type[_T]) -> _T:
    """A part of what was read before, in the form that it should have. Raises Unreadable."""
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise Unreadable(str(error)) from None


def read_json(path: Path | str, form: type[_T], most_bytes: int = _MOST_BYTES) -> _T:
    """What is in a file of JSON. Raises Unreadable, and OSError for one that is not there or may not be read."""
    return decode(read_regular(path, most_bytes, follow=True), form)


def read_regular(path: Path | str, most_bytes: int = _MOST_BYTES, follow: bool = False, start_bytes: int = 0) -> bytes:
    """All that is in a file, after its first `start_bytes`. Raises as above; a file that is larger is not read."""
    with opened_regular(path, follow) as descriptor:
        size = os.fstat(descriptor).st_size
        if size > most_bytes:
            raise Unreadable(f"it has {size:,} bytes, and may have {most_bytes:,}")
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(start_bytes)
            return file.read(max(0, size - start_bytes))


def lines(file: BinaryIO, most_bytes: int = _MOST_LINE_BYTES) -> Iterator[bytes]:
    """The lines of a file that somebody else wrote; what is longer than any line of ours comes in pieces, so that it
    is never in memory as a whole."""
    while line := file.readline(most_bytes):
        yield line


@contextmanager
def opened_regular(path: Path | str, follow: bool = False) -> Iterator[int]:
    """A descriptor of a file that a job could have replaced by a pipe, or by a link unless links are to be followed:
    then OSError, and never a wait."""
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
    """Of what could be decoded: of its nesting and its numbers."""
    if len(data) <= _LITTLE_BYTES:
        return
    if _LONG_NUMBER in data.translate(_AS_ZERO) and _LONG_NUMBER in _STRING.sub(b"", data).translate(_AS_ZERO):
        raise Unreadable(f"a number in it has more than {MOST_DIGITS} digits")
    if len(data.translate(None, _NO_BRACKET)) <= 2 * _MOST_DEPTH:
        return
    # Brackets that are not in strings; each round takes the innermost ones away. Two quotes side by side are a string
    # without a bracket in it, or the end of one and the beginning of the next.
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in data else data
    marks = plain.translate(None, _NO_MARK).replace(b'""', b"")
    brackets = b"".join(marks.split(b'"')[::2])
    for _ in range(_MOST_DEPTH):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if not brackets:
            return
    raise Unreadable(_TOO_DEEP)


# Which process of this machine a number means: numbers are given out again, and all of them after its next start.


@cache
def boot_id() -> str:
    """Of the machine's last start; empty where there is no /proc."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def process_start(pid: int) -> int | None:
    """When the process started, in clock ticks since boot: field 22 of its stat, counted after the name in brackets.
    None: there is none, or it has ended and nobody asked how."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
