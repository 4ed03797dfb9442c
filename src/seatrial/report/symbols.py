"""How each verdict and each state of a cell is shown: a glyph that differs without colour, and a colour."""

from typing import Final

import msgspec


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
    "hole": Symbol("–", "-", "", "a combination that is not run"),
    "waiting": Symbol("·", ".", "", "not started"),
    "queued": Symbol("◌", ",", "blue", "waits for a place"),
    "unfinished": Symbol("◌", ",", "yellow", "nobody works on it"),
    "damaged": Symbol("?", "?", "red", "cannot be read"),
    "running": Symbol("▶", ">", "cyan", "runs"),
    "retrying": Symbol("↻", "r", "yellow", "tried again"),
    "confirming": Symbol("↻", "r", "yellow", "run again to be sure"),
}

_TO_ASCII = {ord(symbol.glyph): symbol.ascii for symbol in SYMBOLS.values()} | {
    ord(char): plain
    for char, plain in {
        "…": "...",
        "·": "-",
        "│": "|",
        "─": "-",
        "×": "x",
        "–": "-",
        "↻": "r",
        "→": "->",
        "●": "*",
    }.items()
}


def to_ascii(text: str) -> str:
    """The same for an output that has no such characters; what is foreign to it becomes a question mark."""
    return text.translate(_TO_ASCII).encode("ascii", "replace").decode("ascii")
