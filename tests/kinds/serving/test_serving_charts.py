"""The table of cases: the worst that was found of each, and never more than was compared."""

from typing import Any

import pytest

from seatrial.job import Finding, Verdict
from seatrial.kinds.serving.answers import Answered, Comparing, check_answers, tolerance_for
from seatrial.kinds.serving.answers.judge import AnswerRule
from seatrial.kinds.serving.charts import charts_of, in_short
from seatrial.kinds.serving.generation import Answer, Case, Generation, Request
from seatrial.kinds.serving.work import LoadSummary

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
    (table,) = charts_of(findings, None, [])
    assert [row[:3] for row in table.rows] == [
        ["one", min(found, key=lambda one: one[1] is Verdict.PASSED)[1], agreement]
    ]


def test_a_case_whose_text_is_not_checked_is_not_called_exact() -> None:
    answer = Answer((Generation(text="yes", input_count=1, generated_count=1),))
    agreements = []
    for skip_check in (False, True):
        case = Case("one", Request(("hi",)), answer, skip_check=skip_check)
        comparing = Comparing(AnswerRule.TEXT, tolerance_for("f32"))
        (table,) = charts_of(list(check_answers([Answered(case, "unary", answer)], comparing, "openai")), None, [])
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
