"""The plan: what would run, what would not and why, how long and for how much."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from seatrial import SeatrialError
from seatrial.job import Excluded, count
from seatrial.plan.pairwise import Coverage
from seatrial.suite import Cell

_VERSION = 1


class PlanError(SeatrialError):
    """A plan that cannot be made, or may not be carried out."""


class UnknownName(PlanError):
    """A --select or --tag that means nothing in this suite."""

    def __init__(self, option: str, text: str, hint: str) -> None:
        self.option, self.text, self.hint = option, text, hint
        super().__init__(f"{option} {text!r} matches nothing{hint}")


class TooManyCells(PlanError):
    def __init__(self, counts: dict[str, int], limit: int) -> None:
        self.counts, self.limit = counts, limit
        most = ", ".join(f"{name}: {count:,}" for name, count in Counter(counts).most_common(3))
        super().__init__(
            f"the suite expands to {sum(counts.values()):,} combinations ({most}), more than max_cells: {limit:,}; "
            "take values out of its axes, or raise `max_cells`"
        )


class OverCost(PlanError):
    """`unbounded` cells have a price, but neither an estimate nor a run limit."""

    def __init__(self, max_cost: float, bound: float, unbounded: int) -> None:
        self.max_cost, self.bound, self.unbounded = max_cost, bound, unbounded
        if bound > max_cost:
            why = f"the plan may cost up to {bound:,.2f}, more than the limit of {max_cost:,.2f}"
        else:
            why = f"what the plan may cost has no bound, and the limit is {max_cost:,.2f}"
        if unbounded:
            why += f"; {count(unbounded, 'cell')} on priced machines without `estimate` or run limit"
        super().__init__(f"{why}. Select fewer cells, give estimates, or raise the limit")


class Cost(msgspec.Struct, frozen=True):
    """Sums over the cells. What is not known is counted, never taken for nothing."""

    seconds: float  # of the cells that have an estimate
    price: float  # of those
    bound: float  # the same, where cells without an estimate count with their run limit
    unknown: int  # cells without an estimate
    unbounded: int  # cells with a price and neither estimate nor run limit

    @classmethod
    def of(cls, cells: Iterable[Cell]) -> "Cost":
        seconds = price = bound = 0.0
        unknown = unbounded = 0
        for cell in cells:
            hourly = cell.price_per_hour or 0.0
            if cell.estimate_s is not None:
                seconds += cell.estimate_s
                price += cell.estimate_s / 3600 * hourly
                bound += cell.estimate_s / 3600 * hourly
            else:
                unknown += 1
                limit_s = cell.policy.run_s
                if limit_s is not None:
                    bound += limit_s / 3600 * hourly
                elif hourly:
                    unbounded += 1
        return cls(seconds, price, bound, unknown, unbounded)


@dataclass(frozen=True)
class Plan:
    suite: str
    cells: tuple[Cell, ...]
    excluded: tuple[Excluded, ...]
    cost: Cost
    labels: dict[str, dict[str, tuple[str, ...]]]  # of each trial's axes, in the order of the suite; without `repeat`
    coverage: Coverage | None = None  # of --pairwise

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
        """The same plan with just these of its cells."""
        kept = tuple(cells)
        return replace(self, cells=kept, cost=Cost.of(kept))

    def check_cost(self, max_cost: float | None) -> None:
        """Raises OverCost unless the plan surely costs no more."""
        if max_cost is not None and (self.cost.bound > max_cost or self.cost.unbounded):
            raise OverCost(max_cost, self.cost.bound, self.cost.unbounded)

    def as_json(self) -> dict[str, Any]:
        """The form of `seatrial plan --json`, which only grows."""
        data: dict[str, Any] = {
            "version": _VERSION,
            "suite": self.suite,
            "cells": [_cell_json(cell) for cell in self.cells],
            "holes": [
                {
                    "trial": combination.trial,
                    "axes": combination.axes,
                    "why": combination.why,
                    "cause": combination.cause,
                }
                for combination in self.excluded
            ],
            "axes": self.labels,
            "counts": self.counts,
            "hours": round(self.hours, 6),
            "price": round(self.price, 6),
            "price_bound": None if self.cost.unbounded else round(self.cost.bound, 6),
        }
        if self.coverage is not None:
            data["pairwise"] = self.coverage.as_json()
        return data


def _cell_json(cell: Cell) -> dict[str, Any]:
    data: dict[str, Any] = {
        "id": cell.id,
        "hash": cell.hash,
        "axes": cell.axes,
        "trial": cell.trial,
        "target": cell.target,
        "tags": sorted(cell.tags),
        "estimate_s": cell.estimate_s,
        "price_per_hour": cell.price_per_hour,
    }
    if cell.contents is not None:
        data["contents"] = msgspec.to_builtins(cell.contents)
    return data
