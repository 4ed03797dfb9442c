"""The report of a run as one HTML file: the overview, and the details of cells and causes as compressed fragments.

The dashboard renders the same fragments on request. All untrusted text goes through the templates, which escape it, and
the page's content security policy allows only our script and style, and no requests.
"""

import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from seatrial.report import ReportError
from seatrial.report.html.cell import CellInspector
from seatrial.report.html.grid import Thumbnail, TrialGrid, thumbnail, thumbnail_of, trial_lists
from seatrial.report.html.metrics import MetricLine, MetricPanel, metric_facts
from seatrial.report.html.templates import asset, content_policy, macro, render
from seatrial.report.view.cell import CellView, url
from seatrial.report.view.grid import trials
from seatrial.report.view.over_runs import metric_plot, run_lanes
from seatrial.report.view.run import RunView, worst_first
from seatrial.report.view.words import FEW_CELLS

# Fragments are shown on demand: compressed into the page in blocks, or fetched from the dashboard.
#
# A fragment is an element with a key (`cell/fae9a109`). Fragments are sorted by key, so a page finds the right block by
# the first key of each.


BLOCK_CHARACTERS = 200_000  # per block before compression; fragments compress far better together


def pack(pieces: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Blocks of (key of the first fragment, compressed markup), from fragments sorted by key. Compresses each block
    once it is full: the markup of all cells takes much memory."""
    blocks: list[tuple[str, str]] = []
    first, held, size = "", list[str](), 0
    for key, markup in pieces:
        if held and size + len(markup) > BLOCK_CHARACTERS:
            blocks.append((first, deflate("".join(held))))
            held, size = [], 0
        first = first if held else key
        held.append(markup)
        size += len(markup)
    return [*blocks, (first, deflate("".join(held)))] if held else blocks


def deflate(text: str) -> str:
    """Compresses text for `DecompressionStream("deflate")`, in base64."""
    return b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode()


class RunPage:
    """The page of one run. Fragments are fetched from `fetched_from`, or included in the page if it is empty.

    `run_link` is the address of the page of another run; by default its report in the folder beside this one."""

    def __init__(self, run: RunView, fetched_from: str = "", run_link: Callable[[str], str] | None = None) -> None:
        self.run = run
        self.run_link = run_link or (lambda name: f"../{url(name)}/report.html" if name in self._beside else "")
        self.causes = {cause.id: cause for cause in run.causes}
        self.fetched_from = fetched_from

    def html(self) -> str:
        """The whole page."""
        return render("run.html.j2", **self.values(None if self.fetched_from else self.pieces()))

    def pieces(self) -> Iterator[tuple[str, str]]:
        """Key and markup of all fragments, sorted by key."""
        return ((key, self.fragment(key)) for key in sorted(self.keys()))

    def values(self, pieces: Iterable[tuple[str, str]] | None) -> dict[str, object]:
        """The template variables of a page that includes these fragments; without any, the page fetches them."""
        style, script = asset("page.css") + asset("chart.css"), asset("chart.js") + asset("page.js")
        fetched_from = self.fetched_from if pieces is None else ""
        # The inspector first shows a cell of the first cause.
        bad = [cell for cause in self.run.causes[:1] for cell in cause.cells] + self.run.failures
        return {
            "run": self.run,
            "causes": [(cause, thumbnail_of(cause, self.thumbnails)) for cause in self.run.causes],
            "thumbnails": self.thumbnails,
            "grids": [grid for grid in self.grids if grid.layout.columns],
            "lists": trial_lists(self.grids),
            "metrics": self.metrics,
            "first": self.inspect(bad[0]) if bad else None,
            "shown": self.inspect(self.run.board.cells[0]) if self.run.board.cells else None,
            "lanes": run_lanes(self.run) if not bad and len(self.run.cells) <= FEW_CELLS else None,
            "style": style,
            "script": script,
            "policy": content_policy(style, script, bool(fetched_from)),
            "fetched_from": fetched_from,
            "blocks": [] if pieces is None else pack(pieces),
        }

    def keys(self) -> Iterator[str]:
        """The keys of all fragments."""
        yield from ("view/cells", "view/time")
        yield from (f"cell/{cell.hash}" for cell in self.run.cells)
        yield from (f"cause/{cause.id}" for cause in self.run.causes)
        yield from self._metric_lines
        for grid in self.grids:
            yield from (grid.key(layout) for layout in grid.layouts() if layout != grid.layout)

    def fragment(self, key: str) -> str:
        """Renders one fragment. Raises ReportError for an unknown key."""
        kind, _, name = key.partition("/")
        if kind == "cell" and name in self.run.by_hash:
            shown = self.inspect(self.run.by_hash[name])
            return str(macro("inspector.html.j2", "cell_fragment")(key, shown, self.run))
        if kind == "cause" and name in self.causes:
            cause = self.causes[name]
            return str(macro("inspector.html.j2", "cause_fragment")(key, cause, self.inspect(cause.cells[0])))
        if key in self._metric_lines:
            line = self._metric_lines[key]
            here = f"#cell/{line.cell}" if line.cell else ""
            plot = metric_plot(line.view, lambda one: here if one.run == self.run.run else self.run_link(one.run))
            return str(macro("metrics.html.j2", "metric_fragment")(key, line, plot, metric_facts(line.view)))
        for grid in self.grids if kind == "grid" else ():
            for layout in grid.layouts():
                if grid.key(layout) == key:
                    return str(macro("grid.html.j2", "grid_fragment")(key, grid, layout))
        if key == "view/cells":
            return str(macro("views.html.j2", "cells_fragment")(key, worst_first(self.run.cells)))
        if key == "view/time":
            return str(macro("views.html.j2", "time_fragment")(key, run_lanes(self.run)))
        raise ReportError(f"unknown page fragment {key!r}")

    def inspect(self, cell: CellView) -> CellInspector:
        return CellInspector(cell, bool(self.fetched_from), self.run_link)

    @cached_property
    def _beside(self) -> set[str]:
        """Runs that have a report in the folder of runs."""
        return {path.parent.name for path in self.run.folder.parent.glob("*/report.html")}

    @cached_property
    def grids(self) -> list[TrialGrid]:
        found = enumerate(trials(self.run.cells, self.run.excluded, self.run.axes))
        return [TrialGrid(one.name, one.cells, one.excluded, one.labels, number) for number, one in found]

    @cached_property
    def thumbnails(self) -> dict[str, Thumbnail]:
        made = {grid.name: thumbnail(grid) for grid in self.grids} if self.run.causes else {}
        return {trial: one for trial, one in made.items() if one is not None}

    @cached_property
    def metrics(self) -> MetricPanel | None:
        made = self.run.series
        return MetricPanel(made, self.run.cells) if made is not None and made.series else None

    @cached_property
    def _metric_lines(self) -> dict[str, MetricLine]:
        return {line.key: line for line in self.metrics.lines} if self.metrics else {}
