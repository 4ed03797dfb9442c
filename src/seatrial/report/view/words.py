"""How metrics and foreign text read in every report: seconds, sizes, and what a job said made harmless."""

import re
import time
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from seatrial.job import Excluded, StageTime, value_text

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
        return value_text(value, "s")
    if 0 < value < 0.0995:
        return f"{value * 1000:.0f} ms"
    if value < 0.995:
        return f"{value:.2f} s" if value > 0 else "0 s"
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


def excluded_text(combination: Excluded) -> str:
    return f"{combination.trial}[{axes_text(combination.axes.items())}]" if combination.axes else combination.trial


def stages_text(stages: Sequence[StageTime]) -> str:
    """How long from each stage to the next, with how far off that may be."""
    parts = []
    for before, after in pairwise(stages):
        sure = before.uncertainty_s + after.uncertainty_s
        within = f" ± {duration_text(sure)}" if sure else ""
        took = duration_text(max(0.0, after.wall_s - before.wall_s))
        parts.append(f"{before.stage.value} → {after.stage.value} {took}{within}")
    return ", ".join(parts)


def clock_text(at_s: float, form: str) -> str:
    """A wall time in universal time. A clock that was absurdly wrong is shown as the beginning of time."""
    try:
        return time.strftime(form, time.gmtime(at_s))
    except (OverflowError, ValueError, OSError):
        return time.strftime(form, time.gmtime(0))


# How each verdict and each state of a cell is shown: a glyph that differs without colour, and a colour.


class Symbol(msgspec.Struct, frozen=True):
    glyph: str
    ascii: str  # for a terminal that cannot show the glyph
    colour: str  # a name that terminals know
    meaning: str


SYMBOLS: Final[dict[str, Symbol]] = {
    "passed": Symbol("✓", "+", "green", "did what it should"),
    "failed": Symbol("✗", "x", "red", "a check failed"),
    "slower": Symbol("↓", "v", "yellow", "slower than its bounds"),
    "faster": Symbol("↑", "^", "cyan", "faster than its bounds"),
    "infra": Symbol("!", "!", "magenta", "broke under the test, through no fault of its own"),
    "timeout": Symbol("◔", "T", "yellow", "ran out of time"),
    "invalid": Symbol("?", "?", "magenta", "could not be judged"),
    "skipped": Symbol("○", "o", "blue", "not run, for the reason given"),
    "xfail": Symbol("≈", "~", "green", "failed as declared"),
    "xpass": Symbol("≠", "X", "red", "passed although a failure was declared"),
    "flaky": Symbol("↻", "r", "yellow", "passed on a retry"),
    "excluded": Symbol("–", "-", "", "excluded: a combination that is not run"),
    "waiting": Symbol("·", ".", "", "not started"),
    "queued": Symbol("◌", ",", "blue", "waits for a place"),
    "unfinished": Symbol("◌", ",", "yellow", "nobody works on it"),
    "damaged": Symbol("?", "?", "red", "cannot be read"),
    "running": Symbol("▶", ">", "cyan", "runs"),
    "retrying": Symbol("↻", "r", "yellow", "tried again"),
    "confirming": Symbol("↻", "r", "yellow", "run again to be sure"),
}

# How an answer compares with what is expected, the best first.
AGREEMENTS: Final = {
    "exact": "as expected",
    "near tie": "another token where both were about as likely",
    "drift": "log-probabilities moved too far",
    "diverged": "another text",
    "structure": "counts, stop reason, tokens or messages of a stream are wrong",
    "error": "an error that is not expected, or none where one is",
    "counts only": "counts and stop reason are checked, the text is not",
    "answered": "not compared",
    "not asked": "for the reason given",
}

_TO_ASCII = str.maketrans(
    {symbol.glyph: symbol.ascii for symbol in SYMBOLS.values()}
    | {"…": "...", "·": "-", "│": "|", "─": "-", "×": "x", "–": "-", "↻": "r", "→": "->", "●": "*"}
)


def to_ascii(text: str) -> str:
    """The same for an output that has no such characters; what is foreign to it becomes a question mark."""
    return text.translate(_TO_ASCII).encode("ascii", "replace").decode("ascii")


def metric_or_open(value: float | None, unit: str = "") -> str:
    if value is None:
        return "open"
    return value_text(value, one_line(unit))


def date_text(at_s: float | None, timed: bool = False) -> str:
    """In universal time; with the time of the day where all are of one day."""
    if at_s is None:
        return ""
    try:
        date = time.gmtime(at_s)
    except (OverflowError, OSError, ValueError):
        return "at no known time"
    return f"{date.tm_mday} {time.strftime('%b %Y %H:%M' if timed else '%b %Y', date)}"


def percent_text(share: float) -> str:
    if abs(share) >= 10:
        return f"{share + 1:,.4g} times" if share > 0 else f"{share:+.0%}"
    return f"{share * 100:+.1f} %" if abs(share) < 0.0995 else f"{share * 100:+.0f} %"


def confidence_text(confidence: float) -> str:
    """Never more than it is: 100 % does not exist."""
    return "> 99.9 % sure" if confidence > 0.999 else f"{int(confidence * 1000) / 10:g} % sure"


def commit_text(commit: str) -> str:
    word = one_line(commit)
    changed = "+" if word.endswith("+") else ""  # there were changes on top of it
    digits = word.removesuffix("+")
    known = len(digits) >= 20 and all(char in "0123456789abcdef" for char in digits)
    return f"{digits[:10]}{changed}" if known else word[:60]
