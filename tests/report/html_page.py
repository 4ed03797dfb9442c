"""A page of the report as a test reads it: its elements and its text, with the pieces that are packed into it."""

import re
import zlib
from base64 import b64decode
from html.parser import HTMLParser

VOID = {"meta", "input", "br", "img", "link", "hr"}
_BLOCK = re.compile(r'<script type="text/plain" class="block" data-first="[^"]*">([^<]*)</script>')


class Page(HTMLParser):
    """All elements of a page; raises nothing, but notes what was never closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._said: list[str] = []
        self.open: list[str] = []
        self.crossed: list[tuple[str, str]] = []
        self.feed(html)
        self.text = "".join(self._said)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        last = self.open.pop()
        if last != tag:
            self.crossed.append((last, tag))

    def handle_data(self, data: str) -> None:
        self._said.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def pieces(html: str) -> str:
    """The markup of everything that is packed into a page."""
    return "".join(zlib.decompress(b64decode(data)).decode() for data in _BLOCK.findall(html))


def unpacked(html: str) -> str:
    """A page with all its pieces in it, as if each had been opened."""
    return _BLOCK.sub("", html).replace("</main>", f"{pieces(html)}</main>")
