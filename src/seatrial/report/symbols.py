"""What each verdict and each state of a cell looks like: a glyph that tells them apart without colour, and a colour."""

from typing import Final

import msgspec


class Look(msgspec.Struct, frozen=True):
    glyph: str
    ascii: str  # for a terminal that cannot show the glyph
    colour: str  # a name that terminals know
    meaning: str


LOOKS: Final[dict[str, Look]] = {
    "passed": Look("✓", "+", "green", "did what it should"),
    "failed": Look("✗", "x", "red", "a check failed"),
    "slower": Look("↓", "v", "yellow", "slower than its bounds"),
    "faster": Look("↑", "^", "cyan", "faster than its bounds"),
    "infra": Look("!", "!", "magenta", "broke under the test, through no fault of its own"),
    "timeout": Look("◔", "T", "yellow", "ran out of time"),
    "invalid": Look("?", "?", "magenta", "could not be judged"),
    "skipped": Look("○", "o", "blue", "not run, for the reason given"),
    "xfail": Look("≈", "~", "green", "failed as declared"),
    "xpass": Look("≠", "X", "red", "passed although a failure was declared"),
    "flaky": Look("↻", "r", "yellow", "passed on a retry"),
    "hole": Look("–", "-", "", "a combination that is not run"),
    "waiting": Look("·", ".", "", "not started"),
    "queued": Look("◌", ",", "blue", "waits for a place"),
    "running": Look("▶", ">", "cyan", "runs"),
    "retrying": Look("↻", "r", "yellow", "tried again"),
    "confirming": Look("↻", "r", "yellow", "run again to be sure"),
}

_TO_ASCII = {ord(look.glyph): look.ascii for look in LOOKS.values()} | {
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
