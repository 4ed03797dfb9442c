"""An executed notebook as one HTML file, readable without Jupyter.

The notebook was written by a job and is not trusted: text is escaped, HTML in Markdown is disabled, images are data
URLs, HTML outputs are in sandboxed frames without scripts and network. Nbconvert is not used because it needs more than
a second of CPU to start.
"""

import itertools
import json
import re
from base64 import b64encode
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.report.html.templates import asset, render
from seatrial.report.view.words import shorten, strip_controls

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_MOST_BYTES = 64 * 1024 * 1024  # larger notebooks are not rendered
_MOST_TEXT = 100_000  # characters of one output
MOST_IMAGE = 8 * 1024 * 1024  # characters of one image's data
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]+")
_COLOUR_CODE = re.compile(r"\x1b\[([0-9;]*)m")
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")

_FRAME_STYLE = "body{font:14px system-ui,sans-serif;margin:8px}td,th{padding:2px 8px;text-align:right}"

INJECTED_TAG = "injected-parameters"  # tag of the notebook cell that Seatrial or papermill inserts


Node = dict[str, Any]  # untrusted JSON of a notebook


def render_file(path: Path) -> str:
    """The page of the notebook at `path`, or a page with the reason if it cannot be shown."""
    data = None
    try:
        if path.stat().st_size > _MOST_BYTES:
            why = f"larger than {_MOST_BYTES // 1024 // 1024} MiB"
        else:
            data, why = json.loads(path.read_bytes()), "no list of cells"
    except OSError as error:
        why = error.strerror or str(error)
    except (ValueError, RecursionError) as error:
        why = f"invalid JSON: {error}"
    if isinstance(data, dict) and isinstance(data.get("cells"), list):
        return render_notebook(data, path.name)
    return _page(path.name, f'<p class="note">Cannot show this notebook: {escape(strip_controls(why))}.</p>')


def render_notebook(notebook: Node, title: str) -> str:
    cells = [cell for cell in notebook["cells"] if isinstance(cell, dict)]
    # Numbered as in the user's file, like in findings.
    positions = itertools.accumulate(INJECTED_TAG not in _tags(cell) for cell in cells)
    return _page(title, "\n".join(map(_cell, cells, positions)))


def _page(title: str, body: str) -> str:
    return render("notebook.html.j2", title=title, style=asset("notebook.css"), body=body)


def _tags(cell: Node) -> list[str]:
    metadata = cell.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    return [str(tag) for tag in tags] if isinstance(tags, list) else []


def _cell(cell: Node, position: int) -> str:
    source = _text(cell.get("source"))
    match cell.get("cell_type"):
        case "markdown":
            return f'<section class="cell">{_markdown(source, cell.get("attachments"))}</section>'
        case "code":
            return _code(cell, source, position)
        case _:
            return f'<section class="cell"><pre>{escape(strip_controls(source))}</pre></section>'


def _code(cell: Node, source: str, position: int) -> str:
    number = cell.get("execution_count")
    shown = "".join(f'<span class="tag">{escape(strip_controls(tag))}</span>' for tag in _tags(cell))
    outputs = cell.get("outputs")
    made = "".join(_output(out) for out in outputs if isinstance(out, dict)) if isinstance(outputs, list) else ""
    count = number if isinstance(number, int) else " "
    return (
        f'<section class="cell code" id="cell-{position}"><span class="count">cell {position} [{count}]</span>{shown}'
        f'<pre class="source"><code>'
        f"{escape(strip_controls(shorten(source, _MOST_TEXT)))}</code></pre>{made}</section>"
    )


def _output(output: Node) -> str:
    match output.get("output_type"):
        case "stream":
            name = "stderr" if output.get("name") == "stderr" else "stdout"
            return f'<pre class="{name}">{coloured_html(shorten(_text(output.get("text")), _MOST_TEXT))}</pre>'
        case "error":
            traceback = output.get("traceback")
            lines = "\n".join(map(str, traceback)) if isinstance(traceback, list) else ""
            text = lines or f"{output.get('ename')}: {output.get('evalue')}"
            return f'<pre class="error">{coloured_html(shorten(text, _MOST_TEXT))}</pre>'
        case "display_data" | "execute_result":
            data = output.get("data")
            return _rich(data) if isinstance(data, dict) else ""
        case _:
            return ""


def _rich(data: Node) -> str:
    """The richest representation that is safe to show."""
    for kind in _IMAGES:
        image = _text(data.get(kind)).strip()
        if image and len(image) <= MOST_IMAGE and _BASE64.fullmatch(image):
            return f'<p><img alt="output" src="data:{kind};base64,{"".join(image.split())}"></p>'
    vector = _text(data.get("image/svg+xml"))
    if 0 < len(vector) <= MOST_IMAGE:  # SVG as an image cannot run scripts
        encoded = b64encode(vector.encode("utf-8", "replace")).decode()
        return f'<p><img alt="output" src="data:image/svg+xml;base64,{encoded}"></p>'
    html = _text(data.get("text/html"))
    if 0 < len(html) <= _MOST_TEXT * 10:  # sandboxed, so its height must be estimated
        rows = html.count("<tr") + html.count("<br") + html.count("<p") + html.count("<li")
        inside = escape(f'<meta charset="utf-8"><style>{_FRAME_STYLE}</style>{html}')
        style = f"height:{min(max(60, 34 + 27 * rows), 480)}px"
        return f'<iframe sandbox="" loading="lazy" title="HTML output" style="{style}" srcdoc="{inside}"></iframe>'
    if markdown := _text(data.get("text/markdown")):
        return _markdown(shorten(markdown, _MOST_TEXT), None)
    if plain := _text(data.get("text/plain")):
        return f'<pre class="plain">{coloured_html(shorten(plain, _MOST_TEXT))}</pre>'
    kinds = ", ".join(escape(strip_controls(str(kind))) for kind in data)
    return f"<p>Output of unsupported type: {kinds}</p>" if kinds else ""


def _markdown(source: str, attachments: Any) -> str:
    for name, kinds in attachments.items() if isinstance(attachments, dict) else ():
        for kind, data in kinds.items() if isinstance(kinds, dict) else ():
            image = _text(data)
            if kind in _IMAGES and _BASE64.fullmatch(image) and len(image) <= MOST_IMAGE:
                source = source.replace(f"(attachment:{name})", f"(data:{kind};base64,{image})")
    made: str = _parser().render(strip_controls(source))
    return made


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("table")


def _text(value: Any) -> str:
    """A notebook's multi-line string: one, or a list of lines."""
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def coloured_html(text: str) -> str:
    """Text with terminal colours, as Jupyter writes tracebacks: escaped, with a span for each coloured or bold part.

    Every other escape sequence is dropped.
    """
    parts = _COLOUR_CODE.split(text)
    made = [escape(strip_controls(parts[0]))]
    colour, bold = "", False
    for codes, shown in zip(parts[1::2], parts[2::2], strict=True):
        colour, bold = _style_after(codes, colour, bold)
        inside = escape(strip_controls(shown))
        classes = " ".join(name for name in (f"ansi-{colour}" if colour else "", "ansi-bold" if bold else "") if name)
        made.append(f'<span class="{classes}">{inside}</span>' if classes and inside else inside)
    return "".join(made)


def _style_after(codes: str, colour: str, bold: bool) -> tuple[str, bool]:
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
            colour = _COLOURS[code % 10]
        elif code == 39:
            colour = ""
        elif code in (38, 48):
            skipped = numbers[1:2] if numbers[:1] == [5] else []
            del numbers[: 2 if numbers[:1] == [5] else 4]
            if code == 38:
                colour = _COLOURS[skipped[0] % 8] if skipped and skipped[0] < 16 else ""
    return colour, bold
