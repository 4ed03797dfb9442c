"""Why: each cause with where it is, how that looks on the grid, and what is new about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seatrial.job import Cause, CellResult, RunResults
from seatrial.job.units import count
from seatrial.report.html.grid import TrialGrid
from seatrial.report.html.since import CauseNewsWord, cause_news
from seatrial.report.summary import cause_place

THUMB_WIDTH, THUMB_HEIGHT = 118, 34
LEAST_CELLS = 6  # of a trial that is drawn small
MOST_CELLS_DRAWN = 6_000


@dataclass(frozen=True)
class Thumbnail:
    """A grid so small that only its shape is left: all its places, and where each of its cells is."""

    number: int
    outline: str  # a path
    places: Mapping[str, str]  # by hash, a path

    def path(self, hashes: Sequence[str]) -> str:
        return "".join(self.places.get(one, "") for one in hashes)


@dataclass(frozen=True)
class CauseLine:
    cause: Cause
    number: int
    where: list[str]  # values of axes, or an id
    there: str
    thumbnail: int | None  # number of the trial's
    marks: str  # path of its cells on it
    news: CauseNewsWord | None


def cause_lines(results: RunResults, thumbnails: Mapping[str, Thumbnail]) -> list[CauseLine]:
    cells = {cell.hash: cell for cell in results.cells}
    return [_line(results, number, cause, cells, thumbnails) for number, cause in enumerate(results.causes, 1)]


def _line(
    results: RunResults,
    number: int,
    cause: Cause,
    cells: dict[str, CellResult],
    thumbnails: Mapping[str, Thumbnail],
) -> CauseLine:
    trials = [cells[one].trial for one in cause.cells if one in cells]
    most = max(set(trials), key=trials.count) if trials else ""
    drawn = thumbnails.get(most)
    where, there = list(cause.place.values()), cause_place(cause, results)
    if cause.place:
        there = there.rpartition(": ")[2]
    return CauseLine(
        cause,
        number,
        where,
        there,
        drawn.number if drawn else None,
        drawn.path(cause.cells) if drawn else "",
        cause_news(cause, cells),
    )


def thumbnail(grid: TrialGrid) -> Thumbnail | None:
    """None for a trial that is too small, or a list."""
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


def sentence(results: RunResults) -> str:
    """What the run came to, where nothing needs attention."""
    total = count(len(results.cells), "cell")
    done = sum(cell.done for cell in results.cells)
    if not done:
        return "Nothing was run"
    if done < len(results.cells):
        return f"{done} of {total} were done, and are as they should be"
    return "The one cell is as it should be" if done == 1 else f"All {total} are as they should be"
