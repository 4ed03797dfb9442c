"""How figures and foreign text read in every report: seconds, sizes, and what a job said made harmless."""

import re
import time
import unicodedata
from collections.abc import Iterable

from seatrial.job import figure_text

# Escape sequences (colours, cursor, window titles), then whatever else a terminal or an XML reader would act upon or
# choke on, and the marks that turn the direction of writing round.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_BREAKS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")


def strip_controls(text: str) -> str:
    """Foreign text without anything that acts: escape sequences and control characters go, lines and tabs stay."""
    return _CONTROLS.sub("", _BREAKS.sub("\n", _ESCAPES.sub("", text)))


def one_line(text: str) -> str:
    return " ".join(strip_controls(text).split())


def first_line(text: str) -> str:
    """The first line that says something."""
    return next((line.strip() for line in strip_controls(text).split("\n") if line.strip()), "")


def shorten(text: str, most: int) -> str:
    """At most about `most` characters, the beginning and the end kept, the middle counted."""
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most // 3
    return f"{text[:head]}\n[… {len(text) - head - tail:,} characters left out …]\n{text[-tail:]}"


def duration_text(value: float | None) -> str:
    if value is None:
        return ""
    if 0 < value < 0.00095:
        return figure_text(value, "s")
    if 0 < value < 0.0995:
        return f"{value * 1000:.0f} ms"
    if value < 9.995:
        return f"{value:.1f} s" if value >= 0.995 else f"{value:.2f} s" if value > 0 else "0 s"
    if value < 59.95:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def rough_duration_text(value: float) -> str:
    """As one says it of a guess."""
    if value < 90:
        return f"{max(1, round(value / 10) * 10 if value >= 10 else round(value))} s"
    return f"{round(value / 60)} min" if value < 5400 else f"{value / 3600:.1f} h"


def size_text(value: float | None) -> str:
    if value is None:
        return ""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 10 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def width(text: str) -> int:
    """Columns that a terminal needs for it."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fit(text: str, columns: int) -> str:
    """Cut to so many columns, with a … where it was cut."""
    if width(text) <= columns:
        return text
    kept: list[str] = []
    left = columns - 1
    for char in text:
        left -= _char_width(char)
        if left < 0:
            break
        kept.append(char)
    return "".join(kept) + ("…" if columns > 0 else "")


def pad(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


def axes_text(axes: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{axis}={value}" for axis, value in axes)


def clock_text(at_s: float, form: str) -> str:
    """A wall time in universal time. A clock that was absurdly wrong is shown as the beginning of time."""
    try:
        return time.strftime(form, time.gmtime(at_s))
    except (OverflowError, ValueError, OSError):
        return time.strftime(form, time.gmtime(0))
