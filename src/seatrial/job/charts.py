"""What a kind shows beside its findings: typed data. How it looks is the business of reports.

In `results.json` they are the `exhibits` of a cell, each with its `kind`.
"""

from typing import Any

import msgspec


class Chart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """Rows of columns. What they hold is the kind's; where a number is drawn, anything else is left out."""

    title: str
    columns: list[str] = []
    rows: list[list[Any]] = []
    units: dict[str, str] = {}  # by column


class Table(Chart, frozen=True, tag="table"):
    """Shown as it is."""


class Series(Chart, frozen=True, tag="series"):
    """Curves over the first column, which is in order."""


class Distribution(Chart, frozen=True, tag="distribution"):
    """A row for each metric, with columns of quantiles."""


class Timeline(Chart, frozen=True, tag="timeline"):
    """Rows of name, begin and end."""


class DiffToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token of an answer; `top` are the likeliest in its place."""

    text: str = ""
    logprob: float | None = None
    rank: int | None = None
    top: list["DiffToken"] = []


class TokenDifference(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where two answers differ for the first time, and by how much; `position` counts tokens from 0."""

    agreement: str = ""
    message: str = ""
    position: int | None = None
    size: float | None = None
    tolerance: float | None = None
    expected: DiffToken | None = None
    got: DiffToken | None = None


class TokenDiff(msgspec.Struct, frozen=True, tag_field="kind", tag="token-diff"):
    """Both sides of two answers where they differ."""

    title: str
    data: TokenDifference = TokenDifference()


class TextBody(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str = ""


class Text(msgspec.Struct, frozen=True, tag_field="kind", tag="text"):
    title: str
    data: TextBody = TextBody()


AnyChart = Table | Series | Distribution | Timeline | TokenDiff | Text
