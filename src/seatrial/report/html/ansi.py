"""Terminal colours as HTML: what Jupyter's tracebacks and coloured logs are written in."""

import re
from html import escape

from seatrial.report.text import clean

_COLOUR = re.compile(r"\x1b\[([0-9;]*)m")
_NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


def to_html(text: str) -> str:
    """Escaped text with a span for each coloured or bold part; every other escape sequence is dropped."""
    parts = _COLOUR.split(text)
    made = [escape(clean(parts[0]))]
    colour, bold = "", False
    for codes, shown in zip(parts[1::2], parts[2::2], strict=True):
        colour, bold = _after(codes, colour, bold)
        inside = escape(clean(shown))
        classes = " ".join(name for name in (f"ansi-{colour}" if colour else "", "ansi-bold" if bold else "") if name)
        made.append(f'<span class="{classes}">{inside}</span>' if classes and inside else inside)
    return "".join(made)


def _after(codes: str, colour: str, bold: bool) -> tuple[str, bool]:
    numbers = [int(code or "0") for code in codes.split(";") if len(code) < 4] or [0]
    while numbers:
        code = numbers.pop(0)
        if code == 0:
            colour, bold = "", False
        elif code == 1:
            bold = True
        elif code in (2, 22):
            bold = False
        elif 30 <= code <= 37 or 90 <= code <= 97:
            colour = _NAMES[code % 10]
        elif code == 39:
            colour = ""
        elif code in (38, 48):
            skipped = numbers[1:2] if numbers[:1] == [5] else []
            del numbers[: 2 if numbers[:1] == [5] else 4]
            if code == 38:
                colour = _NAMES[skipped[0] % 8] if skipped and skipped[0] < 16 else ""
    return colour, bold
