"""Draws `general.png` and `detailed.png`. Needs matplotlib (`seatrial[plot]`).

Workloads without an event are red: triangles at the upper edge, a bar beside the histogram."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.migrate.runai.times import MILESTONES, TOTALS, Milestone, MilestoneMetrics, Row, metrics_of, seconds_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GENERAL = "general"
_BLUE, _RED = "#1f77b4", "#d62728"
_DPI = 100
BINS = 10


def shown_milestones(rows: Sequence[Row], plot: str) -> list[Milestone]:
    """The milestones of a plot; optional ones only if they happened."""
    chosen = TOTALS if plot == GENERAL else [one for one in MILESTONES if one not in TOTALS]
    return [one for one in chosen if not one.filled or any(one.name in row.deltas for row in rows)]


def draw(rows: Sequence[Row], plot: str, path: Path) -> None:
    """Raises ModuleNotFoundError without matplotlib. `rows` must not be empty."""
    figure_of(rows, plot).savefig(path, dpi=_DPI, format="png", metadata={"Software": "seatrial"})


def figure_of(rows: Sequence[Row], plot: str) -> Figure:
    milestones = shown_milestones(rows, plot)
    return _general(rows, milestones) if plot == GENERAL else _detailed(rows, milestones)


def _figure(width: float, height: float, rows: int, columns: int) -> tuple[Figure, Any]:
    """A figure with its axes, without pyplot, which would keep global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def _general(rows: Sequence[Row], milestones: Sequence[Milestone]) -> Figure:
    figure, axes = _figure(15, 3 * len(milestones) + 1, len(milestones), 1)
    figure.suptitle(f"Total number of jobs run: {len(rows)}", fontsize=20)
    for (axis,), milestone in zip(axes, milestones, strict=True):
        _series(axis, list(enumerate(rows)), milestone.name)
        axis.set_xlabel("Number of jobs")
        axis.set_ylabel("Time (seconds)")
        average, more = captions(metrics_of(rows, milestone.name))
        axis.set_title(f"{milestone.name} Time from {milestone.reference} ({average})\n{more}")
    return figure


def _detailed(rows: Sequence[Row], milestones: Sequence[Milestone]) -> Figure:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    figure, axes = _figure(30, 2.2 * len(milestones) + 0.8, len(milestones), 2)
    figure.suptitle(f"Total number of jobs run: {len(rows)}")
    times = [datetime.fromtimestamp(row.submitted_s, UTC) for row in rows]
    room = max((times[-1] - times[0]) * 0.02, timedelta(seconds=0.5))  # at both ends
    for (left, right), milestone in zip(axes, milestones, strict=True):
        _series(left, list(zip(times, rows, strict=True)), milestone.name)
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        left.xaxis.set_major_locator(locator)
        left.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        left.set_ylabel("seconds")
        left.set_xlim(times[0] - room, times[-1] + room)
        average, more = captions(metrics_of(rows, milestone.name))
        left.set_title(f"Time between {milestone.reference} and {milestone.name} ({average}), {more}", fontsize=10)
        _histogram(right, rows, milestone.name)
    axes[-1][0].set_xlabel("submitted (UTC)")
    axes[-1][1].set_xlabel("seconds")
    return figure


def _series(axis: Axes, rows: Sequence[tuple[Any, Row]], name: str) -> None:
    here = [(x, row.deltas[name]) for x, row in rows if name in row.deltas]
    done = [(x, one.value) for x, one in here if one.value is not None]
    waiting = [(x, one.lower) for x, one in here if one.value is None]
    vague = [(x, one) for x, one in here if one.upper is not None and one.upper > one.lower]
    # Show the uncertainty of timestamps in whole seconds.
    axis.vlines(
        [x for x, _ in vague], [one.lower for _, one in vague], [one.upper or 0.0 for _, one in vague],
        color=_BLUE, alpha=0.25, linewidth=1.5,
    )  # fmt: skip
    axis.plot([x for x, _ in done], [y for _, y in done], "o", color=_BLUE, markersize=4)
    top = max([*(y for _, y in done), *(one.upper or 0.0 for _, one in vague)], default=0.0) or 1.0
    if waiting:
        # At the upper edge: their true height would flatten everything else.
        longest = max(y for _, y in waiting)
        label = f"{len(waiting)} unfinished" + (f", up to {seconds_text(longest)} s" if longest else "")
        axis.plot([x for x, _ in waiting], [1.1 * top] * len(waiting), "^", color=_RED, markersize=6, label=label)
        axis.legend(loc="upper left", fontsize=8)
    axis.set_ylim(min([-0.05 * top, *(y for _, y in done)]), 1.2 * top)


def _histogram(axis: Axes, rows: Sequence[Row], name: str) -> None:
    deltas = [row.deltas[name] for row in rows if name in row.deltas]
    done = [one.value for one in deltas if one.value is not None]
    lowest, highest = min(done, default=0.0), max(done, default=0.0)
    width = (highest - lowest or 1.0) / BINS
    if done:
        axis.hist(done, bins=BINS, range=(lowest, lowest + BINS * width), color=_BLUE)
    if waiting := len(deltas) - len(done):
        axis.bar(lowest + (BINS + 1.5) * width, waiting, width, color=_RED, label=f"{waiting} unfinished")
        axis.legend(loc="upper right", fontsize=8)
    axis.set_ylabel("jobs")


def captions(metrics: MilestoneMetrics) -> tuple[str, str]:
    """The average that Run:ai's tool prints; quantiles and the number of unfinished workloads."""
    average = "none" if metrics.average is None else f"{metrics.average:.2f} seconds"
    quantiles = [f"p{share * 100:g} {between(lower, upper)}" for share, lower, upper in metrics.quantiles]
    waiting = [f"{metrics.unfinished} unfinished"] if metrics.unfinished else []
    return f"average: {average}", ", ".join([*(quantiles if metrics.count else []), *waiting])


def between(lower: float, upper: float | None) -> str:
    """A quantile as text: `2`, `1 to 3`, `above 60`."""
    if upper is None:
        return f"above {seconds_text(lower)}"
    low, high = seconds_text(lower), seconds_text(upper)
    return low if low == high else f"{low} to {high}"
