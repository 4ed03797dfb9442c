"""Typed data that a kind wants shown beside its findings. Data only: how it looks is the reports' business."""

from typing import Any, Literal

import msgspec


class Exhibit(msgspec.Struct, frozen=True, omit_defaults=True):
    """`table`: rows of columns. `series`: the same, the first column in order. `distribution`: a row for each figure,
    with columns of quantiles. `token-diff`: in `data`, both sides of two answers where they differ. `timeline`: rows of
    name, begin and end. `text`: in `data`, a `text`."""

    kind: Literal["table", "series", "distribution", "token-diff", "timeline", "text"]
    title: str
    columns: list[str] = []
    rows: list[list[Any]] = []
    units: dict[str, str] = {}  # by column
    data: dict[str, Any] = {}
