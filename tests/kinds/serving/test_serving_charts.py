"""The table of cases: the worst that was found of each, and never more than was compared."""

from typing import Any

import msgspec
import pytest

from seatrial.job import Finding, Series, Table, Tile, Verdict
from seatrial.kinds.serving.answers import Answered, Comparing, check_answers, tolerance_for
from seatrial.kinds.serving.answers.judge import AnswerRule
from seatrial.kinds.serving.charts import charts_of, in_short
from seatrial.kinds.serving.generation import Answer, Generation
from seatrial.kinds.serving.load_model import parse_load_bound
from seatrial.kinds.serving.load_work import LoadStage, LoadSummary
from seatrial.kinds.serving.request import Case, Request

EXACT = ("", Verdict.PASSED, {})
NEAR_TIE = ("", Verdict.PASSED, {"agreement": "near_tie"})
COUNTED = ("", Verdict.PASSED, {"agreement": "counts_only"})
NOT_ASKED = ("signal", Verdict.FAILED, {"agreement": "not_asked"})
DRIFT = ("drift", Verdict.FAILED, {"agreement": "drift"})
LATE = ("late", Verdict.TIMEOUT, {})
SKIPPED = ("", Verdict.SKIPPED, {"agreement": "not_asked"})


@pytest.mark.parametrize(
    ("found", "agreement"),
    [
        ([EXACT, EXACT], "exact"),
        ([EXACT, NEAR_TIE], "near_tie"),
        ([COUNTED, EXACT], "counts_only"),
        ([NEAR_TIE, DRIFT, NOT_ASKED], "drift"),
        ([EXACT, NOT_ASKED], "not_asked"),
        ([NEAR_TIE, LATE], "late"),
        ([SKIPPED], "not_asked"),
    ],
)
def test_a_case_has_the_agreement_of_its_worst_way(
    found: list[tuple[str, Verdict, dict[str, Any]]], agreement: str
) -> None:
    findings = [Finding("case one", "unary", verdict, class_, data=data) for class_, verdict, data in found]
    (table,) = charts_of(findings, None, [], ())
    assert [row[:3] for row in table.rows] == [
        ["one", min(found, key=lambda one: one[1] is Verdict.PASSED)[1], agreement]
    ]


def test_a_case_whose_text_is_not_checked_is_not_called_exact() -> None:
    answer = Answer((Generation(text="yes", input_count=1, generated_count=1),))
    agreements = []
    for skip_check in (False, True):
        case = Case("one", Request(("hi",)), answer, skip_check=skip_check)
        comparing = Comparing(AnswerRule.TEXT, tolerance_for("f32"))
        (table,) = charts_of(list(check_answers([Answered(case, "unary", answer)], comparing, "openai")), None, [], ())
        agreements.append(table.rows[0][1:3])
    assert agreements == [["passed", "exact"], ["passed", "counts_only"]]


def test_what_passed_is_told_in_short_with_its_load() -> None:
    good = [
        Finding(f"case {number}", "unary", Verdict.PASSED, data=data)
        for number, (_, _, data) in enumerate((EXACT, NEAR_TIE))
    ]
    latencies = {"ttft": {"p50": 0.00401, "p99": 0.0231}, "e2e": {"p50": 1.0}}
    load = LoadSummary(requests=100, rate=16.78, latencies=latencies)
    (told,) = in_short(good, load)
    assert told.message == "2 cases: 1 exact, 1 near tie; 100 requests at 16.78/s; ttft p50 4.01 ms; ttft p99 23.1 ms"
    assert in_short([*good, Finding("load", "bound", Verdict.FAILED)], load) == []
    assert in_short([], None) == []


def test_the_first_screen_has_tiles_with_bounds_and_the_latency_of_each_throughput() -> None:
    quantiles = {"ttft": {"p50": 0.01, "p99": 0.4, "count": 90.0}}
    load = LoadSummary(90, offered_rate=9.0, rate=8.0, tokens_per_s=70.0, goodput=0.9, latencies=quantiles)
    stages = [LoadStage(rate, [], "", msgspec.structs.replace(load, rate=rate)) for rate in (8.0, 4.0)]
    bounds = (parse_load_bound("ttft.p99", "300ms"), parse_load_bound("goodput", "95%"))
    findings = [Finding("load", f"bound {one.name}", Verdict.FAILED) for one in bounds]
    charts = charts_of(findings, load, stages, bounds)
    first, throughput, goodput = (one for one in charts if isinstance(one, Tile))
    assert (first.title, first.value, first.bound, first.verdict) == ("TTFT p99", 0.4, "<= 300ms", Verdict.FAILED)
    assert first.note == "p50 10 ms · n 90"
    assert (throughput.title, throughput.value, throughput.bound) == ("Throughput", 70.0, "")
    assert (goodput.value, goodput.unit, goodput.limit) == (90.0, "%", 95.0)
    (sweep,) = (one for one in charts if isinstance(one, Series) and one.bounds)
    assert (sweep.first, sweep.rows) == (True, [[4.0, 0.01, 0.4], [8.0, 0.01, 0.4]])
    assert sweep.bounds == {"ttft p99": 0.3}


def test_a_sweep_shows_its_knee_and_whether_its_bounds_hold() -> None:
    """1/s at 1 s, 4/s at 2 s, 5/s at 10 s: beyond 4/s, latency grows faster than throughput."""
    stages = []
    for rate, e2e_s in ((5.0, 10.0), (1.0, 1.0), (4.0, 2.0)):
        latencies = {name: {"p50": e2e_s, "p99": 2 * e2e_s, "count": 9.0} for name in ("ttft", "e2e")}
        stages.append(LoadStage(rate, [], "", LoadSummary(9, rate=rate, latencies=latencies)))
    charts = charts_of([], stages[2].summary, stages, (parse_load_bound("ttft.p99", "5s"),))
    (sweep,) = (one for one in charts if isinstance(one, Series) and one.bounds)
    assert sweep.columns == ["answered", "ttft p50", "ttft p99", "knee"]
    assert sweep.rows == [[1.0, 1.0, 2.0, None], [4.0, 2.0, 4.0, 2.0], [5.0, 10.0, 20.0, None]]
    (table,) = (one for one in charts if isinstance(one, Table) and one.title == "Load by rate")
    assert [row[-1] for row in table.rows] == ["holds", "holds; knee", "holds"]
    (tile,) = (one for one in charts if isinstance(one, Tile) and one.bound)
    assert (tile.title, tile.verdict) == ("TTFT p99", Verdict.PASSED)
