"""The cells of each trial as small multiples: panels, rows and columns are axes; of other axes the worst is shown."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from seatrial.job import value_text
from seatrial.report.view.cell import CellView
from seatrial.report.view.grid import MOST_EXCLUDED_ROWS, Trial
from seatrial.report.view.run import CauseView, worst_first
from seatrial.report.view.words import duration_text, grouped, one_line

MOST_PANELS = 12
MOST_PLACED = 60_000  # cells times layouts; larger grids have only one layout
_MOST_LABEL = 160


class Layout(NamedTuple):
    """Axis names, "" for none."""

    panels: str
    rows: str
    columns: str


@dataclass(frozen=True)
class Spot:
    """One position of a grid: the worst of its cells, or an excluded combination."""

    verdict: str
    label: str  # tooltip
    cell: CellView | None = None
    cells: Sequence[CellView] = ()  # at this position
    time: str = ""
    metric: str = ""

    @property
    def part(self) -> str:
        """The name of the live part of the page, whichever of its cells is the worst."""
        return f"c-{min(cell.hash for cell in self.cells)}" if self.cell and self.cell.live else ""


@dataclass(frozen=True)
class Panel:
    title: str
    good: int
    cells: int
    rows: list[list[Spot | None]]


@dataclass(frozen=True)
class TrialGrid(Trial[CellView]):
    """The cells of one trial, in any layout."""

    number: int = 0

    @cached_property
    def layout(self) -> Layout:
        """The default layout: machines are columns, the longest other axis is the rows."""
        left = sorted(self.axes, key=lambda axis: -len(self.values[axis]))
        if len(left) < 2:
            return Layout("", left[0] if left else "", "")
        columns = "machine" if "machine" in left else left[-1] if len(left) == 2 else left[1]
        left.remove(columns)
        rows = left.pop(0)
        fitting = [axis for axis in left if len(self.values[axis]) <= MOST_PANELS]
        return Layout(fitting[0] if fitting else "", rows, columns)

    def layouts(self) -> Iterator[Layout]:
        """The layouts to choose from; none if there is no choice."""
        if len(self.axes) < 2:
            return
        wanted = 3 if self.layout.panels else 2
        found = list(itertools.permutations(self.axes, wanted))
        if len(found) * len(self.cells) <= MOST_PLACED:
            yield from (Layout(*(["", *axes] if wanted == 2 else axes)) for axes in found)

    def key(self, layout: Layout) -> str:
        """Key of the fragment with that layout: axes by number, because names may have any characters."""
        return f"grid/{self.number}/{'.'.join(str(self.axes.index(axis)) if axis else '' for axis in layout)}"

    def folded(self, layout: Layout) -> list[str]:
        return [axis for axis in self.axes if axis not in layout]

    def panels(self, layout: Layout) -> tuple[list[str], list[str], list[Panel]]:
        """Row names, column names, and panels."""
        groups = grouped(self.cells, lambda cell: _place(cell.axes, layout))
        reasons: dict[tuple[str, str, str], str] = {}
        known = {row for _, row, _ in groups}
        for combination in self.excluded:
            place = _place(combination.axes, layout)
            if place not in groups and (place[1] in known or len(known) < MOST_EXCLUDED_ROWS):
                known.add(place[1])
                reasons.setdefault(place, combination.why)

        def spot(place: tuple[str, str, str]) -> Spot | None:
            if place in groups:
                return cell_spot(worst_first(groups[place]))
            return Spot("excluded", f"excluded: {one_line(reasons[place])}") if place in reasons else None

        rows = [value for value in self._named(layout.rows) if value in known]
        columns = self._named(layout.columns)
        made = []
        for panel in self._named(layout.panels):
            spots = [[spot((panel, row, column)) for column in columns] for row in rows]
            inside = [cell for place, cells in groups.items() if place[0] == panel for cell in cells]
            made.append(Panel(panel, sum(cell.over and not cell.bad for cell in inside), len(inside), spots))
        return rows, columns, made

    def _named(self, axis: str) -> list[str]:
        """The values of an axis, with "" if some cells do not have it; [""] for no axis."""
        if not axis:
            return [""]
        lacking = any(axis not in cell.axes for cell in self.cells)
        return [*self.values[axis], *([""] if lacking else [])]


TrialList = tuple[str, str, list[tuple[str, Spot | None]]]  # trial, description, rows


def trial_lists(grids: Sequence[TrialGrid]) -> list[TrialList]:
    """The trials without columns: those with a single cell together, and each with a single axis."""
    alone = [grid for grid in grids if not grid.layout.rows and grid.cells]
    made: list[TrialList] = [("", "", [(grid.name, cell_spot(grid.cells)) for grid in alone])] if alone else []
    for grid in grids:
        if grid.layout.rows and not grid.layout.columns:
            names, _, (panel,) = grid.panels(grid.layout)
            about = ", ".join(part for part in (f"by {grid.layout.rows}", grid.fixed()) if part)
            rows = [(name, spots[0]) for name, spots in zip(names, panel.rows, strict=True)]
            made.append((grid.name, about, rows))
    return made


def _place(axes: Mapping[str, str], layout: Layout) -> tuple[str, str, str]:
    return axes.get(layout.panels, ""), axes.get(layout.rows, ""), axes.get(layout.columns, "")


def cell_spot(cells: list[CellView]) -> Spot:
    """The spot for these cells, worst first."""
    cell = cells[0]
    took = duration_text(cell.seconds)
    label = ("newly " if cell.newly_bad else "") + cell.state + (", flaky" if cell.flaky else "")
    label += f": {cell.headline}" if cell.headline else f" {took}" if cell.seconds else ""
    if len(cells) > 1:
        label = f"worst of {len(cells)}, {sum(one.bad for one in cells)} bad: {label}"
    metric = cell.leading_metric
    shown = value_text(metric.value, metric.unit) if metric else ""
    return Spot(cell.state, label[:_MOST_LABEL].rstrip(), cell, cells, took, shown)


# Thumbnails of grids, which show the cells of a cause.


THUMB_WIDTH, THUMB_HEIGHT = 118, 34
LEAST_CELLS = 6  # of a trial with a thumbnail
MOST_CELLS_DRAWN = 6_000


@dataclass(frozen=True)
class Thumbnail:
    """A small picture of a grid: the outline of all cells, and the position of each."""

    number: int
    outline: str  # a path
    places: Mapping[str, str]  # cell hash -> path

    def path(self, hashes: Sequence[str]) -> str:
        return "".join(self.places.get(one, "") for one in hashes)


def thumbnail_of(cause: CauseView, thumbnails: Mapping[str, Thumbnail]) -> Thumbnail | None:
    """The thumbnail of the trial with most of the cause's cells."""
    trials = [cell.trial for cell in cause.cells]
    return thumbnails.get(max(set(trials), key=trials.count))


def thumbnail(grid: TrialGrid) -> Thumbnail | None:
    """None for trials that are too small or too large, or have no columns."""
    layout = grid.layout
    if not LEAST_CELLS <= len(grid.cells) <= MOST_CELLS_DRAWN or not layout.columns:
        return None
    rows, columns, panels = grid.panels(layout)
    step_x = THUMB_WIDTH / max(1, len(panels) * (len(columns) + 1.5) - 1.5)
    step_y = THUMB_HEIGHT / len(rows)
    row_at, column_at = ({value: at for at, value in enumerate(values)} for values in (rows, columns))
    panel_at = {panel.title: at for at, panel in enumerate(panels)}
    places = {}
    for cell in grid.cells:
        x = step_x * (
            panel_at[cell.axes.get(layout.panels, "")] * (len(columns) + 1.5)
            + column_at[cell.axes.get(layout.columns, "")]
        )
        y = step_y * row_at[cell.axes.get(layout.rows, "")]
        width, height = max(1.0, step_x * 0.85), max(1.0, step_y * 0.85)
        places[cell.hash] = f"M{x:.1f} {y:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z"
    return Thumbnail(grid.number, "".join(places.values()), places)
