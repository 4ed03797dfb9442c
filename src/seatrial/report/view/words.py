"""Text of all reports: durations, sizes, dates, symbols; job output without control characters."""

import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from seatrial.job import Excluded, StageTime, read_json, value_text
from seatrial.job.units import count

_T = TypeVar("_T")
_K = TypeVar("_K")
FEW_CELLS = 40  # of a run; shown large, with their durations

# Escape sequences (colours, cursor, window titles); then other characters that a terminal interprets or XML forbids,
# and marks that change the writing direction.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_BREAKS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")


def strip_controls(text: str) -> str:
    """Untrusted text without escape sequences and control characters; line breaks and tabs stay."""
    return _CONTROLS.sub("", _BREAKS.sub("\n", _ESCAPES.sub("", text)))


def one_line(text: str) -> str:
    return " ".join(strip_controls(text).split())


def first_line(text: str) -> str:
    """The first line that is not blank."""
    return next((line.strip() for line in strip_controls(text).split("\n") if line.strip()), "")


def shorten(text: str, most: int) -> str:
    """At most about `most` characters: head and tail are kept, the middle is replaced by its length."""
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
    """Rounded, for estimates."""
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
    """The number of terminal columns."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fit(text: str, columns: int) -> str:
    """Cut to this number of columns, with … at the cut."""
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


DESELECTED = ("tag", "select", "pairwise")  # causes of exclusions


def where_text(places: Iterable[Mapping[str, str]]) -> str:
    """`runtime a, b; machine c, d and 7 more`"""
    labels: dict[str, dict[str, None]] = {}
    for axes in places:
        for axis, label in axes.items():
            labels.setdefault(axis, {})[label] = None
    return "; ".join(f"{axis} {listed(found)}" for axis, found in labels.items())


def listed(names: Iterable[str], most: int = 4, what: str = "") -> str:
    """`a, b and 7 more`, or `a, b and 7 more cells`"""
    found = [one_line(name) for name in names]
    more = len(found) - most
    rest = count(more, f"more {what}") if what else f"{more:,} more"
    return ", ".join(found[:most]) + (f" and {rest}" if more > 0 else "")


def grouped(items: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    """The items by key, in the order of the first item of each key."""
    groups: dict[_K, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def exclusions(excluded: Iterable[Excluded]) -> list[tuple[str, list[Excluded], str]]:
    """Reason, combinations and their axis values, most frequent first. Needs that differ only in the machine and the
    runtime are one reason, and so are deselected combinations."""

    def reason(one: Excluded) -> str:
        need = one.why.partition(" needs ")[2].partition(", machine ")[0]
        why = f"needs {need}" if one.cause == "needs" and need else one_line(one.why) or "no reason given"
        return f"deselected: {why}" if one.cause in DESELECTED else one_line(why)

    found = sorted(grouped(excluded, reason).items(), key=lambda item: -len(item[1]))
    return [
        (
            one_line(some[0].why) if [one.cause for one in some] == ["needs"] else why,
            some,
            where_text(one.axes for one in some),
        )
        for why, some in found
    ]


def not_run_text(excluded: Sequence[Excluded]) -> str:
    """`2 excluded, 3 deselected`"""
    deselected = sum(one.cause in DESELECTED for one in excluded)
    rest = len(excluded) - deselected
    texts = [f"{rest:,} excluded" if rest or not deselected else "", f"{deselected:,} deselected" if deselected else ""]
    return ", ".join(filter(None, texts))


def stages_text(stages: Sequence[StageTime]) -> str:
    """The time between consecutive stages, with its uncertainty."""
    parts = []
    for before, after in pairwise(stages):
        uncertainty_s = before.uncertainty_s + after.uncertainty_s
        within = f" ± {duration_text(uncertainty_s)}" if uncertainty_s else ""
        took = duration_text(max(0.0, after.wall_s - before.wall_s))
        parts.append(f"{before.stage.value} → {after.stage.value} {took}{within}")
    return ", ".join(parts)


def clock_text(at_s: float, form: str, unknown: str = "", local: bool = False) -> str:
    """A wall time, in UTC unless `local`. A time out of range is shown as `unknown`, or as 1970-01-01."""
    try:
        return time.strftime(form, (time.localtime if local else time.gmtime)(at_s))
    except (OverflowError, ValueError, OSError):
        return unknown or clock_text(0.0, form)


# How each verdict and each state of a cell is shown. Glyphs differ without colour, too.


class Symbol(msgspec.Struct, frozen=True):
    glyph: str
    ascii: str  # for terminals that cannot show the glyph
    colour: str  # name of a terminal colour
    meaning: str
    emoji: str = ""  # in Markdown


class _Words(msgspec.Struct):
    symbols: dict[str, Symbol]
    agreements: dict[str, str]  # how an answer compares with the expected one, best first


_WORDS = read_json(Path(__file__).with_name("symbols.json"), _Words)
SYMBOLS: Final = _WORDS.symbols
AGREEMENTS: Final = _WORDS.agreements

_TO_ASCII = str.maketrans(
    {symbol.glyph: symbol.ascii for symbol in SYMBOLS.values()}
    | {"…": "...", "·": "-", "│": "|", "─": "-", "×": "x", "–": "-", "↻": "r", "→": "->", "●": "*"}
)


def to_ascii(text: str) -> str:
    """The text in ASCII: our symbols are replaced, other characters become `?`."""
    return text.translate(_TO_ASCII).encode("ascii", "replace").decode("ascii")


def metric_or_open(value: float | None, unit: str = "") -> str:
    if value is None:
        return "open"
    return value_text(value, one_line(unit))


def date_text(at_s: float | None, timed: bool = False) -> str:
    """A date in UTC; `timed` adds the time of day."""
    return "" if at_s is None else clock_text(at_s, "%-d %b %Y %H:%M" if timed else "%-d %b %Y", "unknown time")


def percent_text(share: float) -> str:
    if abs(share) >= 10:
        return f"{share + 1:,.4g} times" if share > 0 else f"{share:+.0%}"
    return f"{share * 100:+.1f} %" if abs(share) < 0.0995 else f"{share * 100:+.0f} %"


def confidence_text(confidence: float) -> str:
    """Rounded down: never 100 %."""
    return "> 99.9 % confidence" if confidence > 0.999 else f"{int(confidence * 1000) / 10:g} % confidence"


def commit_text(commit: str) -> str:
    word = one_line(commit)
    changed = "+" if word.endswith("+") else ""  # uncommitted changes
    digits = word.removesuffix("+")
    known = len(digits) >= 20 and all(char in "0123456789abcdef" for char in digits)
    return f"{digits[:10]}{changed}" if known else word[:60]
