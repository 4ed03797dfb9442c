"""When the requests of a load begin, and what their times come to: values alone."""

import pytest

from seatrial.job import Verdict
from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.serving.driver.load import parse_metrics
from seatrial.kinds.serving.driver.load_metrics import is_good, summarize_load, token_gaps, tpot, warmup_requests
from seatrial.kinds.serving.driver.load_requests import Timed
from seatrial.kinds.serving.ended import DriverRecords, EndCause
from seatrial.kinds.serving.load import check_load
from seatrial.kinds.serving.load_model import parse_load_bound
from seatrial.kinds.serving.load_work import Lengths, LoadBound, LoadNote, LoadSummary, LoadWork
from seatrial.kinds.serving.prompts import requests_of
from seatrial.kinds.serving.request import Mode, Request
from seatrial.kinds.serving.work import Question


def timed(at_s: float, *tokens_s: float, counts: tuple[int, ...] = (), error: str = "", lag_s: float = 0.0) -> Timed:
    one = Timed(at_s)
    one.begun_s = one.sent_s = at_s + lag_s
    one.first_byte_s = one.begun_s + 0.01
    one.stamps = [at_s + stamp for stamp in tokens_s]
    one.counts = list(counts or [1] * len(tokens_s))
    one.tokens = sum(one.counts)
    one.end_s = one.stamps[-1] if tokens_s else at_s + 1.0
    one.error = error
    return one


def test_a_load_asks_every_case_that_it_can_equally_often_or_prompts_of_given_lengths() -> None:
    questions = (
        Question("a", Request(inputs=("a",))),
        Question("b", Request(inputs=("b",))),
        Question("two", Request(inputs=("c", "d"))),
        Question("wrong", Request(inputs=("e",)), error=True),
        Question("count", Request(inputs=("f",), mode=Mode.TOKENIZE)),
    )
    load = LoadWork(Arrivals("rate", 1.0), requests=10)
    asked = [question.request.inputs[0] for question in requests_of(load, questions, 10)]
    assert (asked.count("a"), asked.count("b")) == (5, 5)
    with pytest.raises(ValueError, match="no case is usable as a load"):
        requests_of(load, questions[2:], 1)
    made = requests_of(LoadWork(Arrivals("rate", 1.0), lengths=Lengths((3, 5), (7, 7))), (), 50)
    assert {len(question.request.inputs[0].split()) for question in made} == {3, 4, 5}
    assert {question.request.stopping.max_new_tokens for question in made} == {7}


def test_tokens_that_came_together_share_the_time_before_them() -> None:
    assert token_gaps(timed(0.0, 0.1, 0.2, 0.5)) == pytest.approx([0.1, 0.3])
    assert token_gaps(timed(0.0, 0.1, 0.2, counts=(1, 4))) == pytest.approx([0.025] * 4)
    assert token_gaps(timed(0.0, 0.1, 0.4, 0.4, 0.4)) == pytest.approx([0.1] * 3)
    assert token_gaps(timed(0.0, 0.1, 0.1)) == []
    assert token_gaps(timed(0.0)) == []


def test_the_time_of_a_token_is_of_those_after_the_first() -> None:
    assert tpot(timed(0.0, 0.1, 0.2, 0.5)) == pytest.approx(0.2)
    assert tpot(timed(0.0, 0.1)) is None


def test_only_what_took_longer_than_all_of_the_second_half_is_warm_up() -> None:
    assert warmup_requests([42.0, 9.0, *[1.0 + place % 3 for place in range(30)]]) == 2
    assert warmup_requests([1.0] * 20) == 0
    assert warmup_requests([float(place) for place in range(20)]) == 0  # it gets slower
    assert warmup_requests([float(20 - place) for place in range(20)]) == 5  # never more than a quarter
    assert warmup_requests([]) == 0


def test_first_turns_are_no_warm_up_of_later_ones_that_are_faster() -> None:
    """The server caches the beginning of each conversation, so its first turn is always the slowest."""
    ones = []
    for turn, ttft_s in ((1, 0.9), (2, 0.1), (3, 0.1)):
        ones += [timed(turn + talk / 10, ttft_s) for talk in range(8)]
        for one in ones[-8:]:
            one.turn = turn
    summary = summarize_load(LoadWork(Arrivals("burst", burst=8)), ones)
    assert summary.warmup == 0
    assert [(row["turn"], row["requests"]) for row in summary.turns] == [(1, 8), (2, 8), (3, 8)]
    ones[0].stamps[0] += 30.0  # the first one of all compiles
    summary = summarize_load(LoadWork(Arrivals("burst", burst=8)), ones)
    assert summary.warmup == 1
    assert [(row["turn"], row["requests"]) for row in summary.turns] == [(1, 7), (2, 8), (3, 8)]


def test_a_summary_says_what_was_measured_and_what_failed() -> None:
    bounds = (parse_load_bound("ttft.p99", "150ms"), parse_load_bound("errors", 0), parse_load_bound("ttft.p25", "1s"))
    ones = [timed(float(at_s), 0.1, 0.2) for at_s in range(8)]
    ones += [timed(8.0, 0.4, 0.5), timed(9.0, error="429"), timed(10.0, error="late", lag_s=0.02)]
    summary = summarize_load(LoadWork(Arrivals("rate", 1.0), bounds=bounds), ones)
    assert (summary.requests, summary.errors, summary.error_kinds) == (11, 2, {"429": 1, "late": 1})
    assert summary.latencies["ttft"]["p50"] == pytest.approx(0.1)
    assert summary.latencies["ttft"]["p25"] == pytest.approx(0.1)
    assert summary.latencies["ttft"]["max"] == pytest.approx(0.4)
    assert summary.latencies["lag"]["max"] == pytest.approx(0.02)
    assert summary.latencies["ttft"]["count"] == 9
    assert summary.goodput == pytest.approx(8 / 11)
    assert summary.tokens == 18
    assert summary.offered_rate == pytest.approx(1.0)
    assert [row["errors"] for row in summary.series] == [0.0] * 9 + [1.0, 1.0]
    broken = LoadWork(Arrivals("rate", 1.0), bounds=bounds).broken_bounds(summary)
    assert [text.split(" ")[0] for text in broken] == ["ttft.p99", "errors"]


def test_a_request_is_good_when_it_keeps_the_bounds_of_requests_itself() -> None:
    bounds = (parse_load_bound("ttft.p50", "150ms"), parse_load_bound("tokens_per_s", 9))
    assert is_good(timed(0.0, 0.1, 0.2), bounds)
    assert not is_good(timed(0.0, 0.2, 0.3), bounds)
    assert not is_good(timed(0.0, 0.1, error="500"), bounds)


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("ttft.p99", "500ms", ("ttft", "p99", "<=", 0.5)),
        ("e2e.mean", 2, ("e2e", "mean", "<=", 2.0)),
        ("itl.p99.9", "<30ms", ("itl", "p99.9", "<", 0.03)),
        ("errors", 0, ("errors", "", "<=", 0.0)),
        ("error_share", "1%", ("error_share", "", "<=", 0.01)),
        ("goodput", "95%", ("goodput", "", ">=", 0.95)),
        ("rate", ">3/s", ("rate", "", ">", 3.0)),
    ],
)
def test_bounds_are_read(name: str, value: object, bound: tuple[str, str, str, float]) -> None:
    found = parse_load_bound(name, value)
    assert (found.metric, found.part, found.operator, pytest.approx(found.value)) == bound


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ttfb.p99", "1s", "unknown metric 'ttfb.p99' of a load"),
        ("ttft", "1s", "invalid metric 'ttft'"),
        ("ttft.p999", "1s", "invalid metric 'ttft.p999'"),
        ("errors.p99", 0, "is a single number"),
        ("ttft.p99", "soon", "a duration such as 500ms"),
        ("goodput", "most", "a share such as 95%"),
        ("rate", ">=nan", "invalid bound 'nan' of 'rate'; use a number"),
        ("rate", ">=nan/s", "invalid bound 'nan/s' of 'rate'"),
        ("goodput", "nan%", "invalid bound 'nan%' of 'goodput'"),
        ("errors", "inf", "invalid bound 'inf' of 'errors'"),
        ("ttft.p99", "nan", "a duration such as 500ms"),
        ("ttft.p99", "nans", "a duration such as 500ms"),
        ("ttft.p99", float("nan"), "a duration such as 500ms"),
    ],
)
def test_what_is_no_bound_is_refused(name: str, value: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_load_bound(name, value)


def test_a_bound_on_what_was_not_measured_does_not_hold() -> None:
    bound = LoadBound("ttft", "p99", "<=", 1.0, "1s")
    assert LoadWork(Arrivals("rate", 1.0), bounds=(bound,)).broken_bounds(LoadSummary(requests=5)) == [
        "ttft.p99 not measured, bound 1s"
    ]
    slow = LoadSummary(requests=5, latencies={"ttft": {"p99": 5.039}})
    assert LoadWork(Arrivals("rate", 1.0), bounds=(bound,)).broken_bounds(slow) == ["ttft.p99 5.039 s, bound 1s"]


def test_a_bound_that_the_route_alone_breaks_says_nothing_of_the_server() -> None:
    written = {"ttft.p50": "10ms", "e2e.p50": "1s", "tpot.p50": "10ms", "e2e.p99": "200ms"}
    bounds = tuple(parse_load_bound(name, value) for name, value in written.items())
    load = LoadWork(Arrivals("rate", 1.0), bounds=bounds)
    summary = summarize_load(load, [timed(0.0, 0.1, 0.105), timed(1.0, 0.1, 0.105)])
    note = LoadNote(summary)
    cause = EndCause(Verdict.INFRA, "lost", "")
    near, _ = check_load(load, DriverRecords(load=note), cause)
    assert [str(one.verdict) for one in near if one.check.startswith("bound")] == ["failed", *["passed"] * 3]
    far, _ = check_load(
        load, DriverRecords(load=note, route="a port-forward", overhead_s=0.02, overhead_p99_s=0.3), cause
    )
    verdicts = {one.check: str(one.verdict) for one in far}
    assert (verdicts["bound ttft.p50"], verdicts["bound e2e.p99"]) == ("invalid", "invalid")
    assert (verdicts["bound e2e.p50"], verdicts["bound tpot.p50"]) == ("passed", "passed")
    assert verdicts["way to the server"] == "passed"


def test_the_text_form_of_prometheus_is_read_without_buckets() -> None:
    text = b'# TYPE a counter\na 3\nb{le="1"} 2.5\nc_bucket{le="+Inf"} 9\nnot a number\n\nd NaN\n'
    assert list(parse_metrics(text)) == ["a", 'b{le="1"}', "d"]
