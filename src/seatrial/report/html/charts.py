"""Charts, tables, token diffs and texts that a kind added to a cell, for the template.

Rows come from a run folder and are not trusted."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, repeat
from typing import Any

from seatrial.job import (
    AnyChart,
    DiffToken,
    Distribution,
    History,
    Series,
    Table,
    Text,
    Tile,
    Timeline,
    TokenDiff,
    value_text,
)
from seatrial.job.units import count
from seatrial.report.view.charts import distribution_plot, is_share, series_plots, share_plot, timeline_plot
from seatrial.report.view.plot import Plot, number_of

_MOST_ROWS = 200
_MOST_TEXT = 20_000
_MOST_TOKENS = 10


@dataclass(frozen=True)
class TokenBar:
    text: str
    chosen: bool
    logprob: str
    share: str
    bar: float


@dataclass(frozen=True)
class Picture:
    """`kind` is `plots`, `table`, `text` or `token-diff`. A distribution has a plot and a table."""

    kind: str
    title: str
    plots: list[Plot] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    numeric: list[bool] = field(default_factory=list)  # which columns have only numbers
    left_out: str = ""
    text: str = ""
    sides: dict[str, list[TokenBar]] = field(default_factory=dict)


def pictures(charts: Sequence[AnyChart], levels: Mapping[str, float] = {}) -> Iterator[Picture]:
    """Adjacent distribution functions share a picture. `levels` are the bounds of metrics."""
    for alike, some in groupby(charts, is_share):
        if alike:
            plot = share_plot([chart for chart in some if isinstance(chart, Series)])
            yield Picture("plots", plot.title, [plot])
        else:
            yield from (_picture(one, levels) for one in some if not isinstance(one, Tile | History))


_Drawn = Table | Series | Distribution | Timeline | TokenDiff | Text


def _picture(chart: _Drawn, levels: Mapping[str, float]) -> Picture:
    match chart:
        case Text():
            return Picture("text", chart.title, text=chart.data.text[:_MOST_TEXT])
        case TokenDiff():
            where = "" if chart.data.position is None else value_text(chart.data.position)
            text = f"token {where}: {chart.data.message or chart.data.agreement}"
            sides = {"expected": _side(chart.data.expected), "got": _side(chart.data.got)}
            return Picture("token-diff", chart.title, text=text, sides=sides)
        case Series() | Timeline():
            plots = series_plots(chart, levels) if isinstance(chart, Series) else [timeline_plot(chart)]
            return Picture("plots", chart.title, plots)
        case Table() | Distribution():
            units = [chart.units.get(name, "") for name in chart.columns]
            named = zip(chart.columns, units, strict=True)
            more = len(chart.rows) - _MOST_ROWS
            return Picture(
                "table",
                chart.title,
                [distribution_plot(chart)] if isinstance(chart, Distribution) else [],
                # Seconds have their unit in the rows, where it differs; other units are in the head.
                [f"{name}, {unit}" if unit not in ("", "s") else name for name, unit in named],
                [list(map(_shown, row, chain(units, repeat("")))) for row in chart.rows[:_MOST_ROWS]],
                [_is_numeric(chart.rows, place) for place in range(len(chart.columns))],
                f"and {count(more, 'more row')} in results.json" if more > 0 else "",
            )


def _shown(value: Any, unit: str = "") -> str:
    number = number_of(value)
    if number is not None:
        return value_text(number, unit if unit == "s" else "")
    return "" if value is None else str(value)


def _is_numeric(rows: Sequence[Sequence[Any]], place: int) -> bool:
    found = [row[place] for row in rows if len(row) > place and row[place] is not None]
    return bool(found) and all(number_of(value) is not None for value in found)


def _side(side: DiffToken | None) -> list[TokenBar]:
    """The most likely tokens, with their probability as a bar."""
    if side is None:
        return []
    tokens = side.top if any(one.text == side.text for one in side.top) else [side, *side.top]
    made = []
    for one in tokens[:_MOST_TOKENS]:
        share = math.exp(min(0.0, one.logprob)) if one.logprob is not None else None
        made.append(
            TokenBar(
                text=repr(one.text)[1:-1],
                chosen=one.text == side.text,
                logprob=f"{one.logprob:.4f}" if one.logprob is not None else "",
                share=f"{share * 100:.3g} %" if share is not None else "",
                bar=round((share or 0.0) * 60, 1),
            )
        )
    return made
