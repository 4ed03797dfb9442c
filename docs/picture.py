"""Draws docs/demo.svg, the picture of what `make demo` prints, from a real run: `python docs/picture.py < OUTPUT`."""

import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

COLUMNS = 112
# Rich's own frame loads a font from elsewhere; a README's picture must not: this one names fonts that readers have.
FRAME = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> None:
    console = Console(record=True, width=COLUMNS, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    for line in sys.stdin.read().splitlines():
        console.print(Text.from_ansi(line), soft_wrap=True)
    target = Path(__file__).with_name("demo.svg")
    console.save_svg(str(target), title="make demo", theme=DIMMED_MONOKAI, code_format=FRAME)
    print(target)


if __name__ == "__main__":
    main()
