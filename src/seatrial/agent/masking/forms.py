"""The forms in which programs write a secret: as it is, line by line, quoted and encoded.

Compressed, encrypted, reversed or split secrets cannot be found.
"""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from typing import Iterator, List, Set
from urllib.parse import quote, quote_plus

SHORTEST_LINE = 4  # of a line in a multi-line secret; a closing bracket alone is not secret
SHORTEST_INSIDE = 8  # base64 characters that depend only on the secret; fewer would match harmless text
_PERCENT = re.compile("%[0-9A-F]{2}")
_UNICODE = re.compile(r"\\u[0-9a-f]{4}")
_IN_DOLLAR_QUOTES = {
    **{chr(code): "\\%03o" % code for code in (*range(32), 127)},
    **{"\a": "\\a", "\b": "\\b", "\x1b": "\\E", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"},
    **{"\\": "\\\\", "'": "\\'"},
}
_IN_DOUBLE_QUOTES = re.compile(r'(["$`\\])')
_SHELL_SPECIAL = re.compile(r"([^A-Za-z0-9_@%+=:,./-])")


def parts(value: str) -> List[str]:
    """Returns the texts to mask: the secret, and each of its lines, which may appear separately."""
    lines = [line.strip() for line in value.splitlines()]
    return [part for part in [value, *lines] if part == value or len(part) >= SHORTEST_LINE] if value else []


def forms(value: str) -> Set[str]:
    """Returns all forms of a value, including itself."""
    data = value.encode("utf-8", "surrogateescape")
    found = {value}
    for of_text in (_quoted, _in_json, _in_url, _in_html):
        found.update(of_text(value))
    for of_bytes in (_in_hex, _in_base64):
        found.update(of_bytes(data))
    return found


def _quoted(value: str) -> Iterator[str]:
    """As quoted by Python, shells and CSV: `'it'"'"'s'` and `'it'\\''s'`, `it\\'s`, the form of `set -x` for control
    characters, that of `declare -p`, and with doubled quotes."""
    data = value.encode("utf-8", "surrogateescape")
    yield repr(value)[1:-1]
    yield repr(data)[2:-1]
    yield ascii(value)[1:-1]
    for other in ("'", '"'):
        yield value.replace("\\", "\\\\").replace(other, "\\" + other)
    yield shlex.quote(value).strip("'")
    yield value.replace("'", "'\\''")
    yield _IN_DOUBLE_QUOTES.sub(r"\\\1", value)
    yield value.replace('"', '""')
    yield _SHELL_SPECIAL.sub(r"\\\1", value)
    yield "".join(_IN_DOLLAR_QUOTES.get(char, char) for char in value)


def _in_json(value: str) -> Iterator[str]:
    """In JSON, and in JSON inside a JSON string, as service logs have it."""
    for to_ascii in (True, False):
        once = json.dumps(value, ensure_ascii=to_ascii)[1:-1]
        upper = _UNICODE.sub(lambda found: "\\u" + found.group()[2:].upper(), once)
        for form in (once, once.replace("/", "\\/"), upper):
            yield form
            yield json.dumps(form, ensure_ascii=to_ascii)[1:-1]


def _in_url(value: str) -> Iterator[str]:
    data = value.encode("utf-8", "surrogateescape")
    spelled = [quote(data, safe=safe) for safe in ("", "/", "!'()*", "!$&'()*+,;=:@")]
    for once in [*spelled, quote_plus(data)]:
        for form in (once, _PERCENT.sub(lambda found: found.group().lower(), once)):
            yield form
            yield quote(form, safe="")


def _in_html(value: str) -> Iterator[str]:
    for apostrophe, mark in (("&#x27;", "&quot;"), ("&#39;", "&#34;"), ("&apos;", "&quot;"), ("'", '"')):
        escaped = html.escape(value, quote=False).replace("'", apostrophe).replace('"', mark)
        yield escaped
        yield escaped.encode("ascii", "xmlcharrefreplace").decode()


def _in_hex(data: bytes) -> Iterator[str]:
    plain = data.hex()
    for form in (plain, plain.upper()):
        pairs = [form[at : at + 2] for at in range(0, len(form), 2)]
        yield form
        for between in (":", " ", "\\x", "-"):
            yield between.join(pairs)


def _in_base64(data: bytes) -> Iterator[str]:
    """In base64, alone and as part of a longer text such as `user:secret`: there the first and last characters depend
    on the neighbours, so only those between are searched, at each of the three alignments."""
    for to_text in (base64.b64encode, base64.urlsafe_b64encode):
        yield to_text(data).decode()
        yield to_text(data).decode().rstrip("=")
        for before in range(3):
            encoded = to_text(bytes(before) + data).decode()
            skipped = (before * 8 + 5) // 6
            whole = (before + len(data)) % 3 == 0
            inside = encoded[skipped:] if whole else encoded.rstrip("=")[skipped:-1]
            if len(inside) >= SHORTEST_INSIDE:
                yield inside
                yield encoded[skipped:]
                yield to_text((b"\0:" if before == 2 else b":"[:before]) + data).decode()[skipped - bool(before) :]
