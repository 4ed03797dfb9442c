"""Charts, tables and token diffs that a kind adds to its findings: typed data, which reports render.

In `results.json` they are the `exhibits` of a cell, each with its `kind`.
"""

from typing import Any

import msgspec


class Chart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """Rows and columns with any values; plots skip values that are not numbers."""

    title: str
    columns: list[str] = []
    rows: list[list[Any]] = []
    units: dict[str, str] = {}  # by column


class Table(Chart, frozen=True, tag="table"):
    """Shown as a table."""


class Series(Chart, frozen=True, tag="series"):
    """Curves over the first column, which is sorted."""


class Distribution(Chart, frozen=True, tag="distribution"):
    """One row per metric, with columns of quantiles."""


class Timeline(Chart, frozen=True, tag="timeline"):
    """Rows of name, start and end."""


class DiffToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token of an answer; `top` are the most likely tokens at its position."""

    text: str = ""
    logprob: float | None = None
    rank: int | None = None
    top: list["DiffToken"] = []


class TokenDifference(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first difference between two answers, and its size; `position` counts tokens from 0."""

    agreement: str = ""
    message: str = ""
    position: int | None = None
    size: float | None = None
    tolerance: float | None = None
    expected: DiffToken | None = None
    got: DiffToken | None = None


class TokenDiff(msgspec.Struct, frozen=True, tag_field="kind", tag="token-diff"):
    """Two answers side by side where they differ."""

    title: str
    data: TokenDifference = TokenDifference()


class TextBody(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str = ""


class Text(msgspec.Struct, frozen=True, tag_field="kind", tag="text"):
    title: str
    data: TextBody = TextBody()


AnyChart = Table | Series | Distribution | Timeline | TokenDiff | Text
