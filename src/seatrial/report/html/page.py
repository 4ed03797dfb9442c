"""A run as one HTML file: the overview in it, everything of a cell or a cause as pieces that are deflated into it.

The same pieces are rendered one by one where pages are served. Everything foreign goes through the templates, which
make it harmless, and the page's own policy forbids every script and style but ours, and every request.
"""

import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from seatrial.job import Cause, CellResult, RunResults, causes_by_cell
from seatrial.kinds.serving.charts import RUNGS, case_matrices
from seatrial.report.html.cell import CellInspector, Packages, inspect_cause, inspect_cell
from seatrial.report.html.grid import (
    Thumbnail,
    TrialGrid,
    cause_lines,
    sentence,
    thumbnail,
    trial_grids,
    trial_lists,
    worst_first,
)
from seatrial.report.html.metrics import FigureLine, FigurePanel, figure_facts, run_figures
from seatrial.report.html.since import run_news
from seatrial.report.html.templates import asset, content_policy, macro, render
from seatrial.report.html.timeline import run_lanes
from seatrial.report.view.cell import read_cell
from seatrial.report.view.changes import newly_bad
from seatrial.report.view.run import RunSummary, causes_sentence, headline_of, summarize

# Pieces of a page that are not in it from the start: deflated into it by the block, or fetched where it is served.
#
# A piece is an element with its key (`cell/fae9a109`). Pieces stand in the order of their keys, so a page finds the
# block of one by the first key of each.


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


class UnknownFragment(Exception):
    """A run has no piece of that key."""


class RunPage:
    """Of one run. `base` is where its folder is as seen from the page; `fetched_from`: the address below which pieces
    are fetched; "" where they are in the page."""

    def __init__(self, results: RunResults, folder: Path, base: str = "", fetched_from: str = "") -> None:
        shown = {cell.hash for cell in results.cells}  # some, where only those were asked for
        causes = [cause for cause in results.causes if not shown.isdisjoint(cause.cells)]
        self.results = replace(results, causes=causes)
        self.folder = folder
        self.base = base
        self.fetched_from = fetched_from

    def html(self) -> str:
        """The whole page."""
        style, script = asset("page.css"), asset("page.js")
        return render(
            "run.html.j2",
            **self.overview(),
            style=style,
            script=script,
            policy=content_policy(style, script, bool(self.fetched_from)),
            fetched_from=self.fetched_from,
            blocks=[] if self.fetched_from else pack((key, self.fragment(key)) for key in self.keys()),
        )

    def overview(self) -> dict[str, Any]:
        """What the templates of the overview take, by name."""
        return {
            "results": self.results,
            "summary": self.summary,
            "news": run_news(self.results),
            "newly": sum(newly_bad(cell) for cell in self.results.cells),
            "sentence": causes_sentence(self.results) or sentence(self.results),
            "causes": cause_lines(self.results, self.thumbnails),
            "thumbnails": self.thumbnails,
            "grids": [grid for grid in self.grids if grid.layout.columns],
            "lists": trial_lists(self.grids),
            "cases": case_matrices(self.results),
            "rungs": RUNGS,
            "figures": self.figures,
            "first": self._first(),
        }

    def keys(self) -> Iterator[str]:
        """Of all pieces that the page may ask for."""
        yield from ("view/cells", "view/time")
        yield from (f"cell/{cell.hash}" for cell in self.results.cells)
        yield from (f"cause/{cause.id}" for cause in self.results.causes)
        yield from self._figure_lines
        for grid in self.grids:
            yield from (grid.key(layout) for layout in grid.layouts() if layout != grid.layout)

    def fragment(self, key: str) -> str:
        """One piece. Raises UnknownFragment."""
        kind, _, name = key.partition("/")
        if kind == "cell" and name in self.cells:
            return str(
                macro("inspector.html.j2", "cell_fragment")(key, self.inspect(self.cells[name]), len(self.cells))
            )
        if kind == "cause" and name in self.causes:
            cause = self.causes[name]
            first = next((self.cells[one] for one in cause.cells if one in self.cells), None)
            shown = inspect_cause(self.results, cause, self.cells, self.inspect(first) if first else None)
            return str(macro("inspector.html.j2", "cause_fragment")(key, shown))
        if key in self._figure_lines:
            line = self._figure_lines[key]
            return str(macro("figures.html.j2", "figure_fragment")(key, line, figure_facts(line.view)))
        if kind == "grid":
            return self._grid_fragment(key)
        if key == "view/cells":
            cells = [(cell, headline_of(cell)) for cell in worst_first(self.results.cells)]
            return str(macro("views.html.j2", "cells_fragment")(key, cells, self._cause_of))
        if key == "view/time":
            return str(macro("views.html.j2", "time_fragment")(key, run_lanes(self.results)))
        raise UnknownFragment(key)

    def inspect(self, cell: CellResult) -> CellInspector:
        view = read_cell(self.folder, cell, self.base)
        cause = self._cause_of.get(cell.hash)
        return inspect_cell(self.results, view, self._packages, cause, served=bool(self.fetched_from))

    def _grid_fragment(self, key: str) -> str:
        for grid in self.grids:
            for layout in grid.layouts():
                if grid.key(layout) == key:
                    return str(macro("grid.html.j2", "grid_fragment")(key, grid, layout))
        raise UnknownFragment(key)

    def _first(self) -> CellInspector | None:
        """What the inspector shows before anything was chosen: a cell of the first cause."""
        bad = [one for cause in self.results.causes[:1] for one in cause.cells if one in self.cells]
        bad += [cell.hash for cell in worst_first(self.results.cells)[:1] if not cell.verdict.good]
        return self.inspect(self.cells[bad[0]]) if bad else None

    @cached_property
    def cells(self) -> dict[str, CellResult]:
        return {cell.hash: cell for cell in self.results.cells}

    @cached_property
    def causes(self) -> dict[str, Cause]:
        return {cause.id: cause for cause in self.results.causes}

    @cached_property
    def _cause_of(self) -> dict[str, Cause]:
        return {hash_: own[0] for hash_, own in causes_by_cell(self.results).items()}

    @cached_property
    def summary(self) -> RunSummary:
        return summarize(self.results)

    @cached_property
    def grids(self) -> list[TrialGrid]:
        return trial_grids(self.results)

    @cached_property
    def thumbnails(self) -> dict[str, Thumbnail]:
        made = {grid.trial: thumbnail(grid) for grid in self.grids} if self.results.causes else {}
        return {trial: one for trial, one in made.items() if one is not None}

    @cached_property
    def figures(self) -> FigurePanel | None:
        """What the history said of the run's figures."""
        from seatrial.report.view.series import read_series

        made = read_series(self.folder)
        return run_figures(self.results, made) if made is not None and made.series else None

    @cached_property
    def _figure_lines(self) -> dict[str, FigureLine]:
        return {line.key: line for line in self.figures.lines} if self.figures else {}

    @cached_property
    def _packages(self) -> Packages:
        return Packages(self.results.cells)


def render_html(results: RunResults, folder: Path, base: str = "") -> str:
    """`base` is where the run folder is as seen from where the report will be; "" when it is written into it."""
    return RunPage(results, folder, base).html()
