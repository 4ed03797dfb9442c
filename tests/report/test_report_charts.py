"""Charts as plots and SVG: what is drawn of typed data, and what of data that are not what they should be."""

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sample
from hypothesis import given
from hypothesis import strategies as st

from report.test_report_series import series, steps
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
    Verdict,
    convert,
)
from seatrial.report.html.charts import pictures
from seatrial.report.html.page import RunPage
from seatrial.report.html.plot import Frame, ticks
from seatrial.report.html.templates import asset, macro
from seatrial.report.view.charts import distribution_plot, series_plots, share_plot, timeline_plot
from seatrial.report.view.over_runs import before_and_since, metric_plot
from seatrial.report.view.plot import MOST_POINTS, Axis, Band, Mark, Plot, Point, curve, label_of
from seatrial.report.view.run import RunView
from seatrial.report.view.series import RunSeries, view_series, write_series

WIDTH = 450


def figure(plot: Plot, width: int = WIDTH) -> ET.Element:
    """The markup of a plot, read back as XML."""
    return ET.fromstring(str(macro("charts.html.j2", "figure")(plot, True, width)))


def labels(plot: Plot, width: int = WIDTH) -> list[str]:
    return [one.text or "" for one in figure(plot, width).iter("text")]


def paths(plot: Plot, kind: str) -> list[list[tuple[float, float]]]:
    """The places of each path of a class."""
    found = [one for one in figure(plot).iter("path") if kind in one.attrib["class"].split()]
    return [[(float(x), float(y)) for x, y in re.findall(r"[ML](\S+?) ([\d.e-]+)", one.attrib["d"])] for one in found]


# Axes and values.


@pytest.mark.parametrize(
    ("axis", "low", "high", "texts"),
    [
        (Axis("s"), 0.0, 0.09, ["0", "25 ms", "50 ms", "75 ms"]),
        (Axis("s"), 0.0, 600.0, ["0", "2.5 min", "5 min", "7.5 min", "10 min"]),
        (Axis("B"), 0.0, 3 * 2.0**30, ["0", "1 GiB", "2 GiB", "3 GiB"]),
        (Axis("%", low=0, high=100), 0.0, 100.0, ["0", "25 %", "50 %", "75 %", "100 %"]),
        (Axis("/s"), 0.0, 60.0, ["0", "20/s", "40/s", "60/s"]),
        (Axis("ops"), -1000.0, 1000.0, ["-1,000 ops", "-500 ops", "0", "500 ops", "1,000 ops"]),
        (Axis(), 0.0, 2e6, ["0", "0.5M", "1M", "1.5M", "2M"]),
        (Axis(), 100_000.0, 100_000.4, ["100k", "100.0001k", "100.0002k", "100.0003k", "100.0004k"]),
        (Axis("s", "log"), 1e-4, 1.0, ["100 µs", "1 ms", "10 ms", "100 ms", "1 s"]),
        (Axis("s", "log"), 1.0, 20.0, ["1 s", "10 s"]),
        (Axis(kind="date"), 1_700_000_000.0, 1_700_400_000.0, ["15 Nov", "17 Nov", "19 Nov"]),
        (Axis(kind="date"), 1_700_006_400.0 - 3600, 1_700_006_400.0 + 3600, ["23:00", "15 Nov", "01:00"]),
    ],
)
def test_ticks_are_round_and_have_one_unit(axis: Axis, low: float, high: float, texts: list[str]) -> None:
    assert [text for _, text in ticks(axis, low, high, 4)] == texts


def test_values_have_three_digits_and_the_unit_of_their_size() -> None:
    values = {0.0: "0 s", 0.00012: "120 µs", 0.0123: "12.3 ms", 1.125: "1.13 s", 3600.0: "60 min", 1e5: "27.8 h"}
    assert {value: label_of(value, Axis("s")) for value in values} == values
    assert [label_of(value, Axis()) for value in (1e-9, 999.6, 1e21)] == ["1e-9", "1,000", "1e9T"]
    assert label_of(5 * 2**20, Axis("B")) == "5 MiB"


# Points.


def test_thinning_keeps_the_ends_and_every_extreme() -> None:
    values = [1.0 + (number % 7) / 100 for number in range(50_000)]
    values[777], values[31_234] = 50.0, -3.0
    made = curve("max", enumerate(values))
    assert len(made.points) <= MOST_POINTS
    assert {(777, 50.0), (31_234, -3.0), (0, 1.0), (49_999, values[-1])} <= {point[:2] for point in made.points}
    assert made.points == sorted(made.points)


def test_of_too_many_bars_the_longest_are_drawn() -> None:
    bars = [Point(number, 0, number + (5 if number == 3 else 1), f"n{number}") for number in range(MOST_POINTS + 10)]
    kept = curve("", bars, "lane").points
    assert len(kept) == MOST_POINTS
    assert "n3" in {point.text for point in kept}


def test_what_is_no_finite_number_is_not_drawn() -> None:
    odd = [
        (0, math.nan),
        (1, math.inf),
        (2, -math.inf),
        (math.nan, 1),
        (3, 1e308),
        (4, True),
        (5, None),
        (6, "7"),
        (8, 9),
    ]
    assert [point[:2] for point in curve("", odd).points] == [(8, 9)]


def test_zero_on_a_log_axis_is_drawn_at_its_low_end() -> None:
    plot = Plot(
        "t", [curve("a", [(0.0, 0.0), (0.001, 10.0), (1.0, 100.0)])], Axis("s", "log"), Axis("%", low=0, high=100)
    )
    ((first, second, third),) = paths(plot, "line")
    assert first[0] == second[0] < third[0]
    none = Plot("t", [curve("a", [(0.0, 1.0), (-1.0, 2.0)])], Axis("s", "log"))
    assert labels(none)  # an axis without any value that it can show


@pytest.mark.parametrize("kind", ["line", "step", "dots", "bars", "lane", "heat"])
@pytest.mark.parametrize("points", [[], [Point(5.0, 2.0, 6.0)], [Point(5.0, 2.0, 5.0)] * 2])
@pytest.mark.parametrize("axis", [Axis("s"), Axis("s", "log"), Axis(kind="date")])
def test_no_point_and_one_point_are_drawn(kind: Any, points: list[Point], axis: Axis) -> None:
    drawn = figure(Plot("lonely", [curve("a", points, kind)], axis))
    numbers = [value for one in drawn.iter() for value in one.attrib.values() if "nan" in value or "inf" in value]
    assert numbers == []
    assert bool(points) == any(
        one.tag in ("path", "rect") and one.get("d", "M").startswith("M") for one in drawn.iter()
    )
    assert ("no values" in next(drawn.iter("svg")).attrib["aria-label"]) == (not points)


def test_values_above_the_axis_are_named_at_its_edge() -> None:
    rows = [[number, 9.0 if number == 0 else 0.1] for number in range(20)]
    (plot,) = series_plots(Series("Step time", ["step", "step_time"], rows, {"step_time": "s"}))
    assert plot.y.high == pytest.approx(0.115)  # the compile step does not flatten the others
    assert "▲ 9 s" in labels(plot)
    (late,) = series_plots(Series("Load", ["time", "p50"], [[*reversed(row)] for row in rows], {"step_time": "s"}))
    assert late.y.high is None


def test_names_of_rows_are_cut_to_the_room_there_is() -> None:
    plot = timeline_plot(Timeline("t", [], [["a-very-long-name-of-a-host-in-some-rack" * 3, 0, 1], ["b", 1, 2]]))
    assert [text[-1] for text in labels(plot, 390)[:2]] == ["…", "b"]
    assert Frame(plot, 390).left <= 390 * 0.4


@sample.untimed
@given(st.lists(st.tuples(st.floats(), st.floats(), st.floats()), max_size=30), st.sampled_from(["linear", "log"]))
def test_whatever_the_values_are_a_frame_has_finite_places(points: list[Any], kind: Any) -> None:
    for shape in ("line", "bars"):
        plot = Plot("t", [curve("a", points, shape)], Axis(kind=kind), Axis(kind=kind))
        frame = Frame(plot, WIDTH)
        assert len(frame.x_ticks) < 40
        places = [frame.across(x) for x in plot.curves[0].xs] + [frame.up(point.y) for point in plot.curves[0].points]
        assert all(math.isfinite(place) and -1 <= place <= WIDTH for place in places)


# Plots of charts.


def test_columns_of_one_unit_share_a_plot_and_all_plots_of_an_axis_share_the_crosshair() -> None:
    rows = [[n, n, 0, 0.1 * n] for n in range(100)]
    plots = series_plots(Series("load", ["time", "requests", "errors", "p50"], rows, {"time": "s", "p50": "s"}))
    assert [[one.name for one in plot.curves] for plot in plots] == [["requests", "errors"], ["p50"]]
    assert {plot.group for plot in plots} == {"x time"}
    assert [plot.y.unit for plot in plots] == ["", "s"]


def test_latency_against_throughput_is_a_line_with_dots_over_the_rate() -> None:
    (plot,) = series_plots(
        Series("sweep", ["rate", "p99"], [[1, 0.1], [2, 0.12], [4, 0.9]], {"rate": "1/s", "p99": "s"})
    )
    assert "4/s" in labels(plot)
    assert len(paths(plot, "dots")[0]) == 3
    assert (plot.log, plot.x.unit) == ("y", "/s")


def test_distribution_functions_share_one_plot_on_a_log_axis() -> None:
    charts = [
        Series(
            f"Share of workloads by time to {stage}",
            ["seconds", "share"],
            [[0.0, 0.1], [0.1, 0.5], [9.0, 1.0]],
            {"seconds": "s"},
        )
        for stage in ("created", "started")
    ]
    (picture,) = pictures(charts)
    assert picture.plots == [share_plot(charts)]
    plot = picture.plots[0]
    assert (plot.title, [one.name for one in plot.curves]) == ("Share of workloads by time", ["created", "started"])
    assert (plot.x.kind, plot.log, plot.curves[0].kind) == ("log", "x", "step")
    assert {"p50", "p99", "100 %", "1 s"} <= set(labels(plot))


def test_a_distribution_has_a_lane_per_row_and_a_dot_per_quantile() -> None:
    rows = [["ttft", 1.0, 2.0, 7], ["e2e", 2.0, 4.0, 7], ["none", None, None, 0]]
    chart = Distribution("latencies", ["figure", "p50", "p99", "count"], rows, {"p50": "s", "p99": "s"})
    plot = distribution_plot(chart)
    assert [(point.x, point.end, point.y) for point in plot.curves[0].points] == [(1, 2, 0), (2, 4, 1)]
    assert [one.name for one in plot.curves] == ["range", "p50", "p99"]
    assert plot.curves[2].points[1].text == "e2e\np99 4 s"
    (picture,) = pictures([chart])
    assert picture.rows[0] == ["ttft", "1 s", "2 s", "7"]


def test_many_hosts_are_a_heat_map() -> None:
    columns = [f"step_time, host {number}" for number in range(8)]
    rows = [[step, *(2.0 if number == 5 else 1.0 for number in range(8))] for step in range(300)]
    (plot,) = series_plots(Series("Step time", ["step", *columns], rows, dict.fromkeys(columns, "s")))
    assert [name for _, name in plot.y.ticks] == [str(number) for number in range(8)]
    assert {(point.y, point.heat) for point in plot.curves[0].points} == {(n, float(n == 5)) for n in range(8)}
    assert len(plot.curves[0].points) <= MOST_POINTS
    assert plot.note == "by step, pale 1 s to solid 2 s"
    shades = {one.attrib["fill-opacity"] for one in figure(plot).iter("rect")}
    assert shades == {"0.1", "1"}


def test_a_metric_has_its_bounds_its_changes_and_a_link_for_each_run() -> None:
    made = view_series(series(steps(2.0, 2.2), verdict={29: "slower"}, mark={3: "false-alarm"}))
    plot = metric_plot(made, lambda point: f"../{point.run}")
    assert plot.marks[-1].label.startswith("+10 % since ")
    assert plot.bands[0].low is not None
    assert plot.curves[0].points[29].link == f"../{made.points[29].run}"
    assert [point.state for point in plot.curves[0].points if point.state] == ["v-flaky", "v-slower"]
    assert "bounds" in labels(plot)
    odd = series([2.0, 3.0])
    lost = msgspec.structs.replace(odd.points[1], at_s=1e300)
    assert (
        len(metric_plot(view_series(msgspec.structs.replace(odd, points=[odd.points[0], lost]))).curves[0].points) == 1
    )
    histogram = before_and_since(made)
    assert histogram is not None
    assert [round(sum(point.y for point in one.points)) for one in histogram.curves] == [100, 100]
    assert before_and_since(view_series(series(steps(2.0)))) is None


def test_points_of_a_metric_lead_to_the_cell_of_this_run_and_to_the_reports_beside_it(tmp_path: Path) -> None:
    made = view_series(series(steps(2.0)))
    names = [point.run for point in made.points]
    for name in names[-3:-1]:
        (tmp_path / name).mkdir()
    (tmp_path / names[-2] / "report.html").touch()
    cell = msgspec.structs.replace(sample.small().cells[0], benchmark=made.benchmark)
    run = msgspec.structs.replace(sample.results("s", Verdict.PASSED, [cell], []), run=names[-1])
    write_series(sample.write_run(tmp_path / names[-1], run), RunSeries(run.run, [made], []))

    def links(page: RunPage) -> list[str]:
        root = ET.fromstring(f"<div>{page.fragment('metric/0')}</div>")
        plot = msgspec.json.decode(root.find(".//figure").attrib["data-plot"], type=Plot)  # type: ignore[union-attr]
        return [point.link for point in plot.curves[0].points[-3:]]

    view = RunView(run, tmp_path / names[-1])
    assert links(RunPage(view)) == ["", f"../{names[-2]}/report.html", f"#cell/{cell.hash}"]
    assert links(RunPage(view, "piece/", lambda name: f"/r/{name}"))[0] == f"/r/{names[-3]}"


def test_a_mark_a_band_and_a_bound_are_drawn_where_they_are() -> None:
    bands, marks = (
        [Band(2, None, label="slow"), Band(0, 5, "x", "load")],
        [Mark(4, "bound", "y", "bound"), Mark(3, "deploy")],
    )
    plot = Plot("t", [curve("a", [(0, 1), (10, 4)])], bands=bands, marks=marks)
    frame = Frame(plot, WIDTH)
    rects = {one.attrib["class"]: one.attrib for one in figure(plot).iter("rect")}
    assert (rects["band"]["y"], rects["part1"]["x"]) == ("0", "5")
    lines = {one.attrib["class"]: one.attrib for one in figure(plot).iter("line")}
    assert float(lines["mark bound"]["y1"]) == pytest.approx(frame.up(4), abs=0.1)
    assert {"slow", "load", "bound", "deploy"} <= set(labels(plot))


# Tables, texts and anything else.


def test_every_value_is_in_the_table_behind_a_plot() -> None:
    plot = Plot("t", [curve("a", [Point(0, 1.5, text="run 1", link="../r/1"), Point(1, 2.5)], "dots")], y=Axis("s"))
    rows = [["".join(field.itertext()) for field in row] for row in figure(plot).iter("tr")]
    assert rows == [["series", "at", "value", "about"], ["a", "0", "1.5 s", "run 1"], ["a", "1", "2.5 s", ""]]
    assert [link.attrib["href"] for link in figure(plot).iter("a")] == ["../r/1"]


def test_hostile_names_are_text() -> None:
    made = Series(
        sample.HOSTILE, [sample.HOSTILE, f"{sample.HOSTILE}2"], [[0, 1], [1, 2]], {sample.HOSTILE: sample.HOSTILE}
    )
    for chart in (made, Distribution(sample.HOSTILE, ["a", "p50"], [[sample.HOSTILE, 1.0]], {"p50": sample.HOSTILE})):
        (picture,) = pictures([chart])
        text = str(macro("charts.html.j2", "picture")(picture, True))
        tags = {one.tag for one in ET.fromstring(text).iter()}
        assert "script" not in tags
        assert "\x1b" not in text
        assert "alert(" in text


def test_a_figure_that_is_not_baked_has_only_its_data() -> None:
    plot = Plot("t", [curve("a", enumerate(range(100)))])
    text = str(macro("charts.html.j2", "figure")(plot, False))
    assert "<svg" not in text
    tricky = Plot(',0.0,"","","",0.0]', plot.curves)
    for one, markup in ((plot, text), (tricky, str(macro("charts.html.j2", "figure")(tricky, False)))):
        assert msgspec.json.decode(ET.fromstring(markup).attrib["data-plot"], type=Plot) == one
        assert "[1.0,1.0]" in markup


def test_the_script_is_small() -> None:
    assert len(asset("chart.js").encode()) <= 16 * 1024


def test_answers_stand_beside_each_other_with_the_probability_of_each_token() -> None:
    expected = {"text": " the", "logprob": math.log(0.4), "top": [{"text": " the", "logprob": math.log(0.4)}]}
    got = {"text": " a", "logprob": math.log(0.5), "top": [{"text": " the", "logprob": math.log(0.3)}]}
    data = {"position": 17, "message": "diverged", "expected": expected, "got": got}
    (picture,) = pictures([TokenDiff("case", convert(data, TokenDifference))])
    assert [(one.text, one.share, one.chosen) for one in picture.sides["expected"]] == [(" the", "40 %", True)]
    assert [(one.text, one.chosen) for one in picture.sides["got"]] == [(" a", True), (" the", False)]


@pytest.mark.parametrize("kind", [Table, Series, Distribution, Timeline])
def test_whatever_the_rows_hold_something_is_shown(kind: type[Chart]) -> None:
    wrong = [[], [None], ["x", "y"], [1e400, float("nan"), True], [1, 10**400], [{"a": 1}, [2]]]
    for columns in (["a", "p50", "max"], ["a", "share"]):
        (picture,) = pictures([kind("odd", columns, wrong)])  # type: ignore[list-item]
        assert "odd" in macro("charts.html.j2", "picture")(picture, True)


@pytest.mark.parametrize("chart", [Table("odd"), Series("odd"), Distribution("odd"), TokenDiff("odd"), Text("odd")])
def test_a_chart_without_anything_in_it_is_shown(chart: AnyChart) -> None:
    assert "odd" in macro("charts.html.j2", "picture")(next(pictures([chart])), True)


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
