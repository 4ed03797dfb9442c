"""Charts as pictures: what is drawn of typed data, and what of data that are not what they should be."""

import math
from typing import Any

import msgspec
import pytest

from seatrial.job import (
    AnyChart,
    Chart,
    Distribution,
    Series,
    Table,
    Text,
    Timeline,
    TokenDiff,
    TokenDifference,
    convert,
)
from seatrial.report.html.charts import HEIGHT, MOST_POINTS, WIDTH, picture
from seatrial.report.html.templates import macro


def test_a_series_has_a_curve_for_each_column_and_keeps_its_peaks() -> None:
    rows = [[n, 1.0, 50.0 if n == 777 else 1.0] for n in range(2_000)]
    made = picture(Series("load", ["at_s", "p50", "max"], rows, {"at_s": "s", "max": "s"}))
    assert [curve.name for curve in made.curves] == ["p50", "max"]
    assert (made.begin, made.end, made.curves[1].high) == ("0 s", "1999 s", "50 s")
    places = [tuple(map(float, point.split(","))) for point in made.curves[1].path.split()]
    assert len(places) <= MOST_POINTS
    assert min(y for _, y in places) == 4  # the peak is at the top
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places)


def test_a_series_of_one_point_is_a_dot() -> None:
    made = picture(Series("loss", ["step", "loss"], [[1, 0.5]]))
    assert made.curves[0].single == (WIDTH / 2, HEIGHT / 2)
    assert "<circle" in macro("charts.html.j2", "chart")(made)


def test_a_distribution_has_its_quantiles_on_one_scale() -> None:
    rows = [["ttft", 1.0, 2.0, 7], ["e2e", 2.0, 4.0, 7], ["none", None, None, 0]]
    made = picture(Distribution("latencies", ["figure", "p50", "p99", "count"], rows, {"p50": "s", "p99": "s"}))
    assert [(bar.left, bar.right) for bar in made.bars] == [(WIDTH / 4, WIDTH / 2), (WIDTH / 2, WIDTH), (0, 0)]
    assert made.bars[0].text == "p50 1 s, p99 2 s"


def test_answers_stand_beside_each_other_with_the_probability_of_each_token() -> None:
    expected = {"text": " the", "logprob": math.log(0.4), "top": [{"text": " the", "logprob": math.log(0.4)}]}
    got = {"text": " a", "logprob": math.log(0.5), "top": [{"text": " the", "logprob": math.log(0.3)}]}
    data = {"position": 17, "message": "diverged", "expected": expected, "got": got}
    sides = picture(TokenDiff("case", convert(data, TokenDifference))).sides
    assert [(one.text, one.share, one.chosen) for one in sides["expected"]] == [(" the", "40 %", True)]
    assert [(one.text, one.chosen) for one in sides["got"]] == [(" a", True), (" the", False)]


@pytest.mark.parametrize("kind", [Table, Series, Distribution, Timeline])
def test_whatever_the_rows_hold_something_is_shown(kind: type[Chart]) -> None:
    wrong = [[], [None], ["x", "y"], [1e400, float("nan"), True], [1, 10**400], [{"a": 1}, [2]]]
    assert "odd" in macro("charts.html.j2", "chart")(picture(kind("odd", ["a", "p50", "max"], wrong)))  # type: ignore[arg-type]


@pytest.mark.parametrize("chart", [Table("odd"), Series("odd"), Distribution("odd"), TokenDiff("odd"), Text("odd")])
def test_a_chart_without_anything_in_it_is_shown(chart: AnyChart) -> None:
    assert "odd" in macro("charts.html.j2", "chart")(picture(chart))


ROWS = {"columns": ["a", "b"], "rows": [["x", 1], [None, 2.5]], "units": {"b": "s"}}
TOKEN = {"text": " the", "logprob": -0.5, "rank": 1, "top": [{"text": " the", "logprob": -0.5}]}
DIFFERENCE = {"agreement": "drift", "message": "moved", "position": 3, "size": 0.1, "tolerance": 0.01}


@pytest.mark.parametrize(
    "written",
    [
        *({"kind": kind, "title": "t", **ROWS} for kind in ("table", "series", "distribution", "timeline")),
        {"kind": "token-diff", "title": "t", "data": {**DIFFERENCE, "expected": TOKEN, "got": TOKEN}},
        {"kind": "text", "title": "t", "data": {"text": "x"}},
    ],
)
def test_a_chart_of_an_earlier_file_is_read_and_written_as_it_was(written: dict[str, Any]) -> None:
    assert msgspec.to_builtins(convert(written, AnyChart)) == written  # type: ignore[arg-type]
