"""The page of a log: all lines, compressed, with marks at error lines.

The script draws only visible lines, so logs with 100,000 lines open quickly."""

import os
import re
from dataclasses import dataclass

from seatrial.job import ERROR_PATTERN
from seatrial.job.units import count
from seatrial.report.html.page import deflate
from seatrial.report.html.templates import asset, content_policy, render
from seatrial.report.view.words import size_text

_MOST_BYTES = 48 * 1024 * 1024  # of longer logs, only head and tail are shown
_MOST_MARKS = 1_000
_ERROR = re.compile(ERROR_PATTERN.encode(), re.MULTILINE)
_GAP = re.compile(rb"^\[(?:seatrial: )?\d+ bytes left out here\]\r?$", re.MULTILINE)
_COLOURS = re.compile(rb"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class LogText:
    text: str
    lines: int
    cut_at: int  # lines before the omitted part; all lines if nothing is omitted
    left_out: int  # lines
    errors: list[int]  # numbers of lines, from 1
    gaps: list[int]


def _read_log(descriptor: int) -> LogText:
    """Reads an open file, because a job could have replaced its path by a link or a pipe. Raises OSError."""
    with open(descriptor, "rb", closefd=False) as file:
        size = os.fstat(descriptor).st_size
        if size <= _MOST_BYTES:
            data = file.read(_MOST_BYTES)
            return _read(data, data.count(b"\n") + 1, 0)
        head = file.read(_MOST_BYTES // 2).rpartition(b"\n")[0]
        left_out = 0
        at = file.seek(len(head) + 1)
        while at < size - _MOST_BYTES // 2:
            part = file.read(min(1 << 20, size - _MOST_BYTES // 2 - at))
            left_out += part.count(b"\n")
            at += len(part)
        first, _, tail = file.read().partition(b"\n")
    note = f"[{size_text(size - len(head) - len(tail))} left out here; see log.txt]".encode()
    return _read(b"\n".join((head, note, tail)), head.count(b"\n") + 2, left_out + bool(first) - 1)


def _read(data: bytes, cut_at: int, left_out: int) -> LogText:
    plain = _COLOURS.sub(b"", data) if b"\x1b[" in data else data
    errors, gaps = (_lines_of(pattern, plain) for pattern in (_ERROR, _GAP))
    if left_out:
        gaps = sorted({*gaps, cut_at})
        errors = [line if line <= cut_at else line + left_out for line in errors]
    return LogText(data.decode("utf-8", "replace"), data.count(b"\n") + 1, cut_at, left_out, errors, gaps)


def _lines_of(pattern: re.Pattern[bytes], data: bytes) -> list[int]:
    found: list[int] = []
    line, at = 1, 0
    for match in pattern.finditer(data):
        line += data.count(b"\n", at, match.start())
        at = match.start()
        if not found or found[-1] != line:
            found.append(line)
        if len(found) == _MOST_MARKS:
            break
    return found


def render_log(descriptor: int, title: str, subtitle: str = "", plain: str = "log.txt", back: str = "") -> str:
    """`plain` and `back` are the URLs of the log file and of the report. Raises OSError."""
    log = _read_log(descriptor)
    number = len(log.errors)
    more = " or more" if number == _MOST_MARKS else ""
    marks = [f"{number:,}{more} error line{'' if number == 1 else 's'}"] if number else []
    style, script = asset("page.css") + asset("log.css"), asset("log.js")
    return render(
        "log.html.j2",
        log=log,
        title=title,
        subtitle=subtitle,
        about=", ".join([count(log.lines + log.left_out, "line"), *marks]),
        plain=plain,
        back=back,
        data=deflate(log.text),
        style=style,
        script=script,
        policy=content_policy(style, script),
    )
