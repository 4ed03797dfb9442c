"""Counts figures by the shapes of lines: lines that differ only in their digits have their figures at the same places.

The lines of a training log are of a few shapes, thousands of each. A pattern that takes every digit for any other (most
do) is asked once for each shape instead of once for each line, and the counts are still exact.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, Optional

from .figures import all_plain
from .lines import Block
from .patterns import Pattern

MOST_KNOWN = 5_000  # shapes that are remembered of one pattern
FEWER = 8  # times as many lines as shapes: else it is quicker to search them all
SKIP_BLOCKS = 20  # before it is tried again
_ONE_DIGIT = bytes.maketrans(b"123456789", b"000000000")


class Shapes:
    def __init__(self) -> None:
        self._known: Dict[str, Dict[bytes, Optional[int]]] = {}
        self._of_block: Optional[Dict[bytes, int]] = None
        self._ready = False
        self._skip = 0

    def next_block(self) -> None:
        self._ready = False

    def count(self, pattern: Pattern, block: Block) -> Optional[int]:
        """How many figures there are; None when that cannot be known so, or when not all of them are finite numbers."""
        shapes = self._shapes(block) if pattern.digits_alike else None
        if shapes is None:
            return None
        known = self._known.setdefault(pattern.text, {})
        total = 0
        for shape, lines in shapes.items():
            if shape not in known:
                if len(known) >= MOST_KNOWN:
                    known.clear()
                tokens = pattern.on_line_all(shape)
                known[shape] = len(tokens) if all_plain(tokens) else None
            each = known[shape]
            if each is None:
                return None
            total += each * lines
        return total

    def _shapes(self, block: Block) -> Optional[Dict[bytes, int]]:
        """Of the block that is being read: found once, for all patterns."""
        if not self._ready:
            self._ready, self._of_block = True, None
            if self._skip:
                self._skip -= 1
                return None
            lines = block.data.translate(_ONE_DIGIT).split(b"\n")
            found = Counter(lines)
            if len(found) * FEWER <= len(lines):
                self._of_block = found
            else:
                self._skip = SKIP_BLOCKS
        return self._of_block
