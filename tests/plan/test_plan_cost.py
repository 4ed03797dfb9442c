"""Hours and price: from history, else from estimates; what is not known is counted, and bounds a cost."""

from collections.abc import Callable

import pytest

from seatrial.cli.plan import totals
from seatrial.plan import PlanError, expand
from seatrial.suite import Suite

Make = Callable[..., Suite]
PRICED = {"dear": {"price": 6.0}, "free": {}}


def test_history_comes_before_the_trials_estimate_and_that_before_the_suites(suite_of: Make) -> None:
    suite = suite_of(
        machines=PRICED,
        estimate="2h",
        trials={
            "own": {"kind": "probe", "machine": "dear", "estimate": "1h"},
            "other": {"kind": "probe", "machine": "dear"},
        },
    )
    plan = expand(suite)
    assert [cell.estimate_s for cell in plan.cells] == [3600, 7200]
    assert (plan.hours, plan.price) == (3, 18)
    known = expand(suite, history={plan.cells[0].hash: 360.0})
    assert known.hours == pytest.approx(2.1)
    assert known.price == pytest.approx(12.6)


def test_cells_without_an_estimate_are_counted_and_bounded_by_their_run_limit(suite_of: Make) -> None:
    plan = expand(suite_of({"machine": "all", "timeout": {"run": "30m"}}, machines=PRICED))
    assert plan.cost.unknown == 2
    assert (plan.hours, plan.price, plan.cost.bound) == (0, 0, 3)
    assert "no estimate for 2 cells (price at most 3.00 by their run limits)" in totals(plan)
    plan.check_cost(3)
    with pytest.raises(PlanError, match=r"may cost up to 3\.00 \(limit 2\.99\)"):
        plan.check_cost(2.99)


def test_what_nothing_bounds_is_refused_under_any_limit(suite_of: Make) -> None:
    plan = expand(suite_of({"machine": "all", "timeout": {"run": None}}, machines=PRICED))
    assert plan.cost.unbounded == 1
    assert plan.as_json()["price_bound"] is None
    assert "so the cost is unlimited" in totals(plan)
    with pytest.raises(PlanError, match="cannot check the cost limit of") as caught:
        plan.check_cost(1e9)
    assert "1 cell on priced machines without `estimate` or run limit" in str(caught.value)
    plan.check_cost(None)


def test_machines_without_a_price_cost_nothing(suite_of: Make) -> None:
    plan = expand(suite_of({"machine": "free", "timeout": {"run": None}}, machines=PRICED))
    plan.check_cost(0)
    assert plan.price == 0
