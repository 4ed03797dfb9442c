"""A run as all reports show it: totals, order, causes, changes. Renderers only format it."""

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path

from seatrial.job import (
    CELLS_WORST_FIRST,
    Cause,
    Change,
    Excluded,
    RunResults,
    Verdict,
    causes_by_cell,
)
from seatrial.job.units import count
from seatrial.report.view import sentences
from seatrial.report.view.cell import CellView
from seatrial.report.view.grid import NOT_WANTED, Matrix, matrices
from seatrial.report.view.series import RunSeries, read_series
from seatrial.report.view.tables import Board, JudgedTable, judged_tables
from seatrial.report.view.words import date_text, exclusions, not_run_text, one_line

_MOST_MEASURED = 200  # cells of a cause that are compared
MOST_MOVES = 3  # sentences about metric changes
_GOOD = {Verdict.XFAIL: "expected failures"}
_NO_FOLDER = Path(os.devnull)  # has no children
_RANKS = {verdict: rank for rank, verdict in enumerate(CELLS_WORST_FIRST)}


class RunView:
    """`folder` is the run folder, for details of cells and series; `base` is its path or URL as seen from the report.
    If the results have only some of the cells, only their causes are included. `states` are those of cells that have no
    verdict yet, by hash."""

    def __init__(
        self, results: RunResults, folder: Path = _NO_FOLDER, base: str = "", states: Mapping[str, str] | None = None
    ) -> None:
        self.states = states or {}
        self.live = states is not None
        self.results = results
        self.folder = folder
        self.base = base
        self.run, self.suite, self.verdict = results.run, results.suite, results.verdict
        self.exit_code, self.recorded_counts, self.axes = results.exit_code, results.counts, results.axes
        self.started_s, self.seconds, self.commit = results.started_s, results.seconds, results.commit
        self.interrupted, self.target, self.seatrial = results.interrupted, results.target, results.seatrial
        self.excluded, self.against, self.changes = results.excluded, results.against, results.changes
        self.cells = [CellView(self, cell) for cell in results.cells]
        self.by_hash = {cell.hash: cell for cell in self.cells}
        causes = [cause for cause in results.causes if not self.by_hash.keys().isdisjoint(cause.cells)]
        self.causes = [CauseView(self, cause) for cause in causes]
        views = {cause.id: cause for cause in self.causes}
        found = causes_by_cell(results).items()  # a cell may have several
        self.causes_of = {hash_: [views[one.id] for one in own if one.id in views] for hash_, own in found}
        # Cells that are not good, worst first.
        self.failures = sorted((cell for cell in self.cells if cell.bad), key=lambda cell: _RANKS[cell.verdict])
        self.flaky = [cell for cell in self.cells if cell.flaky]
        self.newly_bad = sum(cell.newly_bad for cell in self.cells)
        self.xfails = [(cell, finding) for cell in self.cells for finding in cell.xfails]
        self.not_run = not_run_text(self.excluded)
        # Excluded combinations without those deselected in this run.
        self.declared_exclusions = [one for one in self.excluded if one.cause not in NOT_WANTED]
        # What changed, one sentence per kind of change, and since when; empty if nothing was compared.
        self.news, self.since = sentences.news_sentences(results), sentences.since_text(results)
        self.causes_sentence = sentences.causes_sentence(results)
        self.undone = sum(not cell.attempts or cell.verdict is Verdict.SKIPPED for cell in self.cells)
        self.rerun_failed = self.rerun(f"--failed {self.run}")  # all cells that did not pass

    def rerun(self, selection: str) -> str:
        """The command that reruns the selected cells."""
        return rerun_command(self.results, selection)

    @cached_property
    def counts(self) -> dict[Verdict, int]:
        """Number of cells by verdict, worst first, without zeros."""
        counted = Counter(cell.verdict for cell in self.cells)
        return {verdict: counted[verdict] for verdict in CELLS_WORST_FIRST if counted[verdict]}

    def same_packages(self, cell: CellView) -> int:
        """Number of other cells with the same packages."""
        return self._packages[tuple(cell.packages.items())] - 1

    @cached_property
    def _packages(self) -> Counter[tuple[tuple[str, str], ...]]:
        return Counter(tuple(cell.packages.items()) for cell in self.cells)

    @cached_property
    def skips(self) -> dict[str, int]:
        """Number of skipped cells and steps by reason."""
        return dict(Counter(reason for cell in self.cells for reason in cell.skips))

    @cached_property
    def exclusions(self) -> list[tuple[str, list[Excluded], str]]:
        """Reason, excluded combinations, and their axis values."""
        return exclusions(self.excluded)

    @cached_property
    def matrices(self) -> list[Matrix[CellView]]:
        """The cells of each trial as rows and columns."""
        return matrices(self.cells, self.excluded, self.axes)

    @cached_property
    def board(self) -> Board:
        return Board(self.cells)

    @cached_property
    def tables(self) -> list[JudgedTable]:
        """Results that the cells of a trial have in common, such as cases."""
        return judged_tables(self.cells)

    @cached_property
    def series(self) -> RunSeries | None:
        """The history of the run's metrics, as it was when the run ended."""
        return read_series(self.folder)

    @cached_property
    def moved(self) -> list[str]:
        """The newest level changes of the run's metrics, one sentence per commit."""
        return (
            [sentences.change_group_text(group) for group in self.series.together[:MOST_MOVES]] if self.series else []
        )

    @cached_property
    def regressions(self) -> list[str]:
        """Metrics with a regression that is neither accepted nor fixed, or with a shift in their last runs. Each names
        the first run."""
        return [
            f"{one_line(view.name)}: {text}"
            for view in (self.series.series if self.series else [])
            for text in sentences.open_texts(view)
        ]

    @property
    def news_counts(self) -> list[tuple[str, bool]]:
        """Short form of `news`, each with whether it is bad."""
        return sentences.news_counts(self.results)

    @property
    def sentence(self) -> str:
        """The result of the run."""
        total, done = count(len(self.cells), "cell"), sum(cell.done for cell in self.cells)
        if self.causes_sentence:
            return self.causes_sentence
        if not done:
            return "No cells were run"
        if done < len(self.cells):
            return f"{done} of {total} finished, all OK"
        several = [f"{number} {_GOOD.get(verdict, verdict.value)}" for verdict, number in self.counts.items()]
        kinds = f": {', '.join(several)}" if len(several) > 1 else ""
        return "1 cell OK" if done == 1 else f"All {total} OK{kinds}"


class CauseView:
    """A cause with the cells of the run that it explains."""

    def __init__(self, run: RunView, cause: Cause) -> None:
        self._run = run
        self._cause = cause
        self.id, self.verdict, self.hashes = cause.id, cause.verdict, cause.cells
        self.place, self.news = cause.place, cause.news
        self.news_text = sentences.cause_news_text(cause)
        self.news_short = sentences.cause_news_text(cause, short=True)  # without the run

    @property
    def cells(self) -> list[CellView]:
        return [self._run.by_hash[one] for one in self.hashes if one in self._run.by_hash]

    @cached_property
    def text(self) -> str:
        """The message, or what its findings measured: `step_time 95 ms, +48 %`."""
        return sentences.cause_text(self._cause, [cell.result for cell in self.cells[:_MOST_MEASURED]])

    @cached_property
    def where(self) -> str:
        return sentences.cause_place(self._cause, self._run.results)

    @property
    def extent(self) -> str:
        """How many of the cells at its place it covers; without a place, the same as `where`."""
        return f"({self.where.rpartition('(')[2]}" if self.place else self.where

    @cached_property
    def new(self) -> int:
        """Number of its cells that were good in their previous run."""
        return sum(cell.newly_bad for cell in self.cells)

    @property
    def again(self) -> int:
        """Number of its cells that will be tried again, while the run is in progress."""
        return sum(not cell.over for cell in self.cells)

    @property
    def news_word(self) -> str:
        if self.new:
            return f"{self.new} new"
        if self.news is None:
            return ""
        if self.news.change is Change.BACK:
            return "back"
        return f"since {date_text(self.news.since.at_s)}" if self.news.since else self.news.change.value

    def summary(self, text: Callable[[str], str]) -> dict[str, object]:
        """For JSON; `text` shortens untrusted text to the limit of the format."""
        return {
            "id": self.id,
            "verdict": self.verdict.value,
            "text": text(self.text),
            "cells": len(self.hashes),
            "place": text(self.where),
        }

    @property
    def rerun(self) -> str:
        """The command that reruns its cells."""
        place = ",".join(f"{axis}={value}" for axis, value in self.place.items() if axis != "host")
        whole = place and self._cause.there == self._cause.of
        selects = [place] if whole else [f"/{one}" for one in self.hashes[:20]]
        return self._run.rerun(" ".join(f"--select {shlex.quote(one)}" for one in selects))


def rerun_command(results: RunResults, selection: str) -> str:
    """The command that reruns the selected cells, with the options that change cells."""
    changed = [("--target", results.target)] if results.target else []
    changed += [("--set", text) for text in results.overrides]
    options = [f"{option} {shlex.quote(text)}" for option, text in changed]
    return " ".join(["seatrial run", shlex.quote(results.suite_path or results.suite), *options, selection])


def bad_rows(matrix: Matrix[CellView]) -> set[int]:
    """Rows with a failure."""
    return {row for (row, _), cell in matrix.cells.items() if cell.bad}


def first_rows(matrix: Matrix[CellView], most: int) -> list[int]:
    """At most this many rows, in order; rows with a failure are preferred."""
    bad = bad_rows(matrix)
    return sorted(sorted(range(len(matrix.rows)), key=lambda row: row not in bad)[:most])


def worst_first(cells: Iterable[CellView]) -> list[CellView]:
    return sorted(cells, key=lambda cell: (not cell.bad, _RANKS[cell.verdict], not cell.flaky))
