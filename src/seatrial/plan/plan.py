"""The plan: cells, exclusions, estimated hours and price."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from seatrial import SeatrialError
from seatrial.job import Excluded, count
from seatrial.plan.pairwise import Coverage
from seatrial.suite import Cell

_VERSION = 1


class PlanError(SeatrialError):
    """A plan cannot be made, or must not be run."""


def cell_id(trial: str, labels: Mapping[str, str]) -> str:
    """`generic[runtime=pytorch,machine=a100]`; a trial without axes has one cell, with its name."""
    inside = ",".join([f"{axis}={label}" for axis, label in labels.items()])
    return f"{trial}[{inside}]" if inside else trial


class Cost(msgspec.Struct, frozen=True):
    """Sums over the cells. Unknown values are counted, not treated as zero."""

    seconds: float  # total of the cells with an estimate
    price: float  # total of the same cells
    bound: float  # the price, with the run limit for cells without an estimate
    unknown: int  # cells without an estimate
    unbounded: int  # cells with a price and neither estimate nor run limit

    @classmethod
    def of(cls, cells: Iterable[Cell]) -> "Cost":
        seconds = price = bound = 0.0
        unknown = unbounded = 0
        for cell in cells:
            hourly = cell.machine.price or 0.0
            longest_s = cell.estimate_s
            if longest_s is None:
                unknown += 1
                longest_s = cell.spec.timeout.run_s
            else:
                seconds += longest_s
                price += longest_s / 3600 * hourly
            if longest_s is not None:
                bound += longest_s / 3600 * hourly
            elif hourly:
                unbounded += 1
        return cls(seconds, price, bound, unknown, unbounded)


@dataclass(frozen=True)
class Plan:
    suite: str
    cells: tuple[Cell, ...]
    excluded: tuple[Excluded, ...]
    cost: Cost
    labels: dict[str, dict[str, tuple[str, ...]]]  # trial -> axis -> labels, in suite order, without `repeat`
    coverage: Coverage | None = None  # with --pairwise

    @property
    def hours(self) -> float:
        return self.cost.seconds / 3600

    @property
    def price(self) -> float:
        return self.cost.price

    @property
    def counts(self) -> dict[str, int]:
        causes = Counter(f"holes_{combination.cause}" for combination in self.excluded)
        return {
            "combinations": len(self.cells) + len(self.excluded),
            "cells": len(self.cells),
            "holes": len(self.excluded),
            **dict(sorted(causes.items())),
            "unknown_estimates": self.cost.unknown,
        }

    def of(self, cells: Iterable[Cell]) -> "Plan":
        """The plan with only these cells."""
        kept = tuple(cells)
        return replace(self, cells=kept, cost=Cost.of(kept))

    @property
    def unmatched_rules(self) -> list[str]:
        """Rules that match nothing in any cell of their trial. Cells that are not selected might match them."""
        partial = {one.trial for one in self.excluded if one.cause in ("select", "tag", "pairwise")}
        found: dict[str, set[str]] = {}
        for cell in self.cells:
            if cell.contents is not None and cell.trial not in partial:
                found.setdefault(cell.trial, {*cell.contents.unmatched}).intersection_update(cell.contents.unmatched)
        return [
            f"trials.{trial}.{rule} matches no case; correct or remove it"
            for trial in found
            for rule in sorted(found[trial])
        ]

    def check_cells(self, where: str = "") -> None:
        """Raises PlanError if there is nothing to run."""
        if not self.cells:
            raise PlanError(f"nothing to run: {len(self.excluded):,} combinations are excluded or deselected{where}")

    def check_cost(self, max_cost: float | None) -> None:
        """Raises PlanError unless the plan is certain to cost no more."""
        bound, unbounded = self.cost.bound, self.cost.unbounded
        if max_cost is None or not (bound > max_cost or unbounded):
            return
        cells = f"{count(unbounded, 'cell')} on priced machines without `estimate` or run limit"
        if bound > max_cost:
            why = f"the plan may cost up to {bound:,.2f} (limit {max_cost:,.2f})" + (f"; {cells}" if unbounded else "")
        else:
            why = f"cannot check the cost limit of {max_cost:,.2f}: {cells}"
        raise PlanError(f"{why}; select fewer cells, add estimates, or raise the limit")

    def as_json(self) -> dict[str, Any]:
        """The output of `seatrial plan --json`. Keys are only ever added."""
        return {
            "version": _VERSION,
            "suite": self.suite,
            "cells": [_cell_json(cell) for cell in self.cells],
            "holes": msgspec.to_builtins(self.excluded),
            "axes": self.labels,
            "counts": self.counts,
            "hours": round(self.hours, 6),
            "price": round(self.price, 6),
            "price_bound": None if self.cost.unbounded else round(self.cost.bound, 6),
            **({"pairwise": self.coverage.as_json()} if self.coverage else {}),
        }


def _cell_json(cell: Cell) -> dict[str, Any]:
    return {
        "id": cell.id,
        "hash": cell.hash,
        "axes": cell.axes,
        "trial": cell.trial,
        "target": cell.target,
        "tags": sorted(cell.tags),
        "estimate_s": cell.estimate_s,
        "price_per_hour": cell.machine.price,
        **({"contents": msgspec.to_builtins(cell.contents)} if cell.contents is not None else {}),
    }
