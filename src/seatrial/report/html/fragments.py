"""Pieces of a page that are not in it from the start: deflated into it by the block, or fetched where it is served.

A piece is an element with its key (`cell/fae9a109`). Pieces stand in the order of their keys, so that a page finds the
block of one by the first key of each."""

import zlib
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass

BLOCK_CHARACTERS = 200_000  # about what is inflated to show one piece: pieces beside each other deflate far better


@dataclass(frozen=True)
class _Block:
    first: str  # key of its first piece
    data: str  # deflated, base64


def pack(pieces: Iterable[tuple[str, str]]) -> list[_Block]:
    """Blocks of (key, markup)."""
    blocks: list[_Block] = []
    first, size = "", 0
    held: list[str] = []
    for key, markup in sorted(pieces):
        if held and size + len(markup) > BLOCK_CHARACTERS:
            blocks.append(_Block(first, deflate("".join(held))))
            held, size = [], 0
        first = first if held else key
        held.append(markup)
        size += len(markup)
    return [*blocks, _Block(first, deflate("".join(held)))] if held else blocks


def deflate(text: str) -> str:
    """As `DecompressionStream("deflate")` inflates it, after base64."""
    return b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode()
