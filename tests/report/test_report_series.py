"""Series in reports: bounds and changes beside the runs, what moved together, charts for terminals and pages."""

import json
import math
import random
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import sample
from hypothesis import given
from hypothesis import strategies as st

from record.past import run, timed
from seatrial.job import Bound, BoundState, Verdict
from seatrial.record.history import Alarm, Point, Series, open_history
from seatrial.report.html.metrics import SPARK_WIDTH, MetricPanel, metric_facts
from seatrial.report.html.plot import Frame
from seatrial.report.html.templates import macro
from seatrial.report.terminal.chart import sparkline, terminal_chart
from seatrial.report.terminal.history import MOST_DRAWN, alarms_lines, history_lines, ranked
from seatrial.report.terminal.lines import paint
from seatrial.report.view.over_runs import metric_plot
from seatrial.report.view.sentences import (
    bound_text,
    change_group_text,
    left_out_text,
    period_text,
    precision_text,
    series_bound_text,
)
from seatrial.report.view.series import (
    MOST_OF_RUN,
    Precision,
    RunSeries,
    SeriesView,
    alarm_precision,
    bounds_outside,
    group_changes,
    read_series,
    run_series,
    view_series,
    with_changes,
    write_series,
)
from seatrial.report.view.words import confidence_text, date_text, metric_or_open, percent_text


def render_series(made: RunSeries) -> str:
    """The metrics of a page, and the piece of each."""
    metrics = MetricPanel(made)
    lines = metrics.lines
    pieces = [
        macro("metrics.html.j2", "metric_fragment")(line.key, line, metric_plot(line.view), metric_facts(line.view))
        for line in lines
    ]
    return "".join(str(piece) for piece in (macro("metrics.html.j2", "all_metrics")(metrics), *pieces))


def spark(view: SeriesView) -> Frame:
    return MetricPanel(RunSeries("r", [view], [])).lines[0].spark


def series(values: list[float], name: str = "llama", better: str = "lower", **of_points: dict[int, Any]) -> Series:
    """One point a day. `of_points`: fields of points by index."""
    points = []
    for index, value in enumerate(values):
        fields = {field: by_index[index] for field, by_index in of_points.items() if index in by_index}
        base = {"verdict": "passed", "commit": f"c{index}"} | fields
        points.append(Point(f"r{index}", 1.79e9 + index * 86400, value, **base))
    return Series(name, "t", "f00d0000", "step_time", "s", better, points)


def steps(*levels: float, each: int = 30, seed: int = 1) -> list[float]:
    noise = random.Random(seed)
    return [level * (1 + noise.gauss(0, 0.005)) for level in levels for _ in range(each)]


def test_a_change_is_told_with_run_commit_levels_and_whether_it_is_worse() -> None:
    slower, higher = view_series(series(steps(2.0, 2.2))), view_series(series(steps(2.0, 2.2), better="higher"))
    (change,) = slower.changes
    assert (change.index, change.run, change.commit, change.way) == (30, "r30", "c30", "worse")
    assert change.size == pytest.approx(0.1, abs=0.01)
    assert (change.before, change.after) == (pytest.approx(2.0, rel=0.01), pytest.approx(2.2, rel=0.01))
    assert [change.way for change in higher.changes] == ["better"]
    assert [change.way for change in view_series(series(steps(2.0, 2.2), better="")).changes] == [""]


def test_changes_are_found_also_where_every_run_after_them_was_an_alarm() -> None:
    slower = dict.fromkeys(range(30, 60), "slower")
    made = view_series(series(steps(2.0, 2.2), verdict=slower))
    assert [change.run for change in made.changes] == ["r30"]
    assert made.left_out == {"out of bounds, unexplained": [f"r{n}" for n in range(30, 60)]}
    assert made.bound is not None
    assert made.bound.upper is not None
    assert made.bound.upper < 2.1


def test_a_failed_run_is_in_the_chart_but_in_no_level() -> None:
    values = steps(2.0)
    values[10:20] = [9.0] * 10
    made = view_series(series(values, verdict=dict.fromkeys(range(10, 20), "failed")))
    assert made.changes == []
    assert len(made.points) == 30
    assert made.left_out == {"the run failed": [f"r{n}" for n in range(10, 20)]}


def test_the_bound_is_of_the_newest_sound_level_and_a_regression_stays_open() -> None:
    made = view_series(series(steps(2.0, 2.2)))
    assert made.bound is not None
    assert (made.bound.runs, made.bound.state, made.bound.since_s) == (30, BoundState.USABLE, 1.79e9)
    assert made.regression == "r30"
    assert made.bound.changed is not None
    assert made.bound.changed.run == "r30"
    assert view_series(series(steps(2.2, 2.0))).regression == ""


def test_a_word_of_a_person_changes_what_the_bound_is_made_from() -> None:
    values = steps(2.0, each=20)
    values[5] = 2.5
    alarm = {"verdict": {5: "slower"}}
    assert view_series(series(values, **alarm)).left_out == {"out of bounds, unexplained": ["r5"]}
    assert view_series(series(values, **alarm, mark={5: "false-alarm"})).left_out == {"outlier": ["r5"]}
    marked = view_series(series(values, **alarm, mark={5: "regression", 9: "fixed"})).left_out
    assert marked == {"marked as a regression": ["r5"], "after a regression, not yet fixed": ["r6", "r7", "r8"]}


def test_an_accepted_level_is_no_regression_and_its_alarms_need_nobody() -> None:
    slower = dict.fromkeys(range(30, 36), "slower")
    worse = view_series(series(steps(2.0, 2.2), verdict=slower))
    assert worse.regression
    assert "6 unreviewed alerts" in paint(history_lines([worse], [], 0, 80, False))
    accepted = dict.fromkeys(range(30, 60), True)
    words = {"mark": {30: "accepted"}, "mark_reason": {30: "we keep the driver"}}
    made = view_series(series(steps(2.0, 2.2), verdict=slower, accepted=accepted, **words))
    assert made.regression == ""
    assert made.bound is not None
    assert (made.bound.runs, made.bound.since_s) == (30, 1.79e9 + 30 * 86400)
    assert made.left_out == {"before the accepted level": [f"r{n}" for n in range(30)]}
    text = paint(history_lines([made], [], 0, 80, False))
    assert "unreviewed" not in text
    assert "accepted  run r30: we keep the driver" in text
    assert "a accepted" in text


def test_what_is_left_out_of_a_bound_is_named_outliers_too() -> None:
    values = steps(2.0, each=20)
    values[7] = 2.9
    made = view_series(series(values, verdict=dict.fromkeys(range(10, 15), "failed")))
    assert left_out_text(made) == "1 × outlier (r7); 5 × the run failed (r10 … r14)"
    assert made.bound is not None
    assert made.bound.runs == 14
    page = " ".join(
        "".join(ElementTree.fromstring(f"<p>{render_series(RunSeries('r', [made], []))}</p>").itertext()).split()
    )
    assert "20 runs" in page
    assert "(14 runs since" in page
    assert f"not used for the bounds: {left_out_text(made)}" in page


def test_metrics_of_repeats_are_not_called_runs() -> None:
    points = [msgspec.structs.replace(point, run=f"r{n // 5}") for n, point in enumerate(series(steps(2.0)).points)]
    made = view_series(Series("llama", "t", "f", "step_time", "s", "lower", points))
    text = paint(history_lines([made], [], 0, 100, False))
    assert ", 30 values of 6 runs, " in text
    assert "(30 values of 6 runs since " in text
    page = render_series(RunSeries("r", [made], []))
    assert page.count("30 values of 6 runs") >= 3  # of the picture, below it, and of the bound
    assert "point" not in ElementTree.fromstring(f"<p>{page}</p>").itertext()


def test_where_a_bound_was_asked_for_and_there_is_none_that_is_said() -> None:
    none = view_series(series(steps(2.0)), [Bound("loss", 0.0, 1.0)])
    assert series_bound_text(none) == "no bounds: not in the baseline"
    assert series_bound_text(none) in paint(history_lines([none], [], 0, 100, False))
    assert series_bound_text(none) in render_series(RunSeries("r", [none], []))
    other = view_series(series(steps(2.0)), [Bound("step_time", 1.0, 3.0, fingerprint="beef0000")])
    assert "no bounds: the bounds are for other conditions" in series_bound_text(other)
    assert "beef0000" in series_bound_text(other)
    assert series_bound_text(view_series(series(steps(2.0), better=""), [])) == ""
    off = Bound("step_time", 1.0, 3.0, state=BoundState.DISABLED, why="flaky `host`", source="b.yaml:3")
    assert (
        series_bound_text(view_series(series(steps(2.0)), [off])) == "bounds from b.yaml:3 are disabled: flaky `host`"
    )


def test_the_bound_of_a_baseline_comes_before_that_of_the_history() -> None:
    given = Bound("step_time", 1.0, 3.0, source="bounds.yaml:4")
    assert view_series(series(steps(2.0)), [Bound("loss", 0.0, 1.0), given]).bound is given
    assert view_series(series(steps(2.0)), []).bound is None
    other = Bound("step_time", 1.0, 3.0, fingerprint="beef0000")
    assert view_series(series(steps(2.0)), [other]).bound is None


def test_a_bound_that_was_moved_says_what_its_width_is_from() -> None:
    moved = Bound("step_time", 1.9, 2.1, unit="s", runs=2, values=4, width_runs=8, source="b.yaml:3")
    assert bound_text(moved) == (
        "bounds 1.9 to 2.1 s (center from 4 values of 2 runs, width of the bounds from 8 earlier runs; from b.yaml:3)"
    )


def test_too_few_runs_say_that_there_is_no_bound_yet() -> None:
    made = view_series(series([2.0, 2.1]))
    assert made.bound is not None
    assert made.bound.state is BoundState.RECORDING
    assert bound_text(made.bound).startswith("no bounds yet from the history: ")


def test_series_that_moved_at_one_commit_are_told_in_one_sentence() -> None:
    three = [with_changes(series(steps(2.0, 2.2, seed=n), f"m{n}")) for n in (1, 2)]
    three.append(with_changes(series(steps(9.0, 9.9, seed=3), "m3", better="higher")))
    three.append(with_changes(series(steps(5.0, seed=4), "m4")))
    (group,) = group_changes(three)
    assert (group.commit, group.run) == ("c30", "r30")
    said = change_group_text(group)
    assert said.startswith("At commit c30 (21 Oct 2026), 3 series changed: 2 worse by ")
    assert "(m1 step_time, m2 step_time); 1 better by " in said
    assert group_changes(three, least=4) == []


def test_without_commits_series_are_grouped_by_run() -> None:
    none = dict.fromkeys(range(60), "")
    two = [with_changes(series(steps(2.0, 2.2, seed=n), f"m{n}", commit=none)) for n in (1, 2)]
    assert [change_group_text(group)[:11] for group in group_changes(two)] == ["At run r30 "]


def test_runs_of_one_commit_are_one_group_though_the_runs_differ() -> None:
    same = {29: "same", 30: "same", 31: "same"}
    first = with_changes(series(steps(2.0, 2.2), "m1", commit=same))
    later = with_changes(series(steps(2.0, each=31) + steps(2.2, each=29), "m2", commit=same))
    assert [len(group.moved) for group in group_changes([first, later])] == [2]


def test_precision_is_of_the_alarms_that_somebody_judged() -> None:
    words = ["regression", "fixed", "false-alarm", "", ""]
    found = alarm_precision(Alarm("r", 0.0, "b", "f", "slower", "", mark=word) for word in words)
    assert (found.alarms, found.confirmed, found.false, found.unjudged) == (5, 2, 1, 2)
    assert precision_text(found) == (
        "5 alerts: 2 confirmed, 1 false alarm, 2 not reviewed; precision 67 % of those reviewed"
    )
    assert "none reviewed" in precision_text(Precision(1, 0, 0))
    accepted = alarm_precision(
        Alarm("r", 0.0, "b", "f", "slower", "", mark=word) for word in ("accepted", "regression", "")
    )
    assert (accepted.accepted, accepted.unjudged, accepted.share) == (1, 1, 1.0)
    assert precision_text(accepted) == (
        "3 alerts: 1 confirmed, 0 false alarms, 1 accepted, 1 not reviewed; precision 100 % of those reviewed"
    )
    assert precision_text(Precision(2, 0, 0, 2)) == "2 alerts, all accepted as a new level"
    assert precision_text(Precision(3, 0, 0, 2)).startswith("3 alerts, 2 accepted, the others not reviewed; ")
    assert precision_text(Precision(0, 0, 0)) == "no alerts"


def test_words_say_no_more_than_is_known() -> None:
    assert [metric_or_open(value, "s") for value in (2.4412, 0.0, 1e-9, 123456.0, None)] == [
        "2.441 s",
        "0 s",
        "1e-09 s",
        "123,456 s",
        "open",
    ]
    assert [percent_text(share) for share in (0.0312, -0.5, 99.0, 0.1)] == ["+3.1 %", "-50 %", "100 times", "+10 %"]
    assert [confidence_text(value) for value in (0.5, 0.99996, 1.0, 0.9899)] == [
        "50 % confidence",
        "> 99.9 % confidence",
        "> 99.9 % confidence",
        "98.9 % confidence",
    ]
    assert [date_text(at_s) for at_s in (0.0, 1e300, None)] == ["1 Jan 1970", "unknown time", ""]
    assert [period_text(0.0, last_s) for last_s in (30.0, 3600.0, 90_000.0, 1e300)] == [
        "1 Jan 1970 00:00 UTC",
        "1 Jan 1970 00:00 to 01:00 UTC",
        "1 Jan 1970 to 2 Jan 1970",
        "1 Jan 1970 to unknown time",
    ]


def test_where_all_is_of_one_day_times_are_told() -> None:
    points = [
        msgspec.structs.replace(point, at_s=1.79e9 + 60 * number)
        for number, point in enumerate(series(steps(2.0, 2.2)).points)
    ]
    made = view_series(Series("llama", "t", "f", "step_time", "s", "lower", points))
    twice = [made, msgspec.structs.replace(made, benchmark="other")]
    alarm = Alarm("r", 1.79e9, "b", "f", "slower", "")
    text = paint(history_lines(twice, [], 0, 100, False)) + paint(alarms_lines([alarm, alarm]))
    page = render_series(RunSeries("r", twice, group_changes(twice)))
    assert "slower  21 Sep 2026 14:13" in text
    for said in (text, page):
        assert "60 runs, 21 Sep 2026 14:13 to 15:12 UTC" in said
        assert "(30 runs since 21 Sep 2026 14:13," in said
        assert "21 Sep 2026 14:43, 2." in said
        assert "At commit c30 (21 Sep 2026 14:43), 2 series changed" in said


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("number", [1, 2, 7, 60, 190, 5000])
def test_a_chart_keeps_its_width_and_shows_the_highest_and_the_lowest(number: int, ascii_only: bool) -> None:
    values = [2.0 + 0.1 * math.sin(index) for index in range(number)]
    values[number // 2] = 9.0
    chart = terminal_chart(with_changes(series(values)), 80, ascii_only)
    assert {len(label) + 1 + len(drawing) for label, drawing in chart.rows} == {80 - 1}
    assert "9" in chart.rows[0][0]
    assert any(drawing.strip() for _, drawing in chart.rows)
    assert number == 1 or (chart.rows[0][1].strip() and chart.rows[-1][1].strip())
    assert not ascii_only or "".join(drawing for _, drawing in chart.rows).isascii()


def test_a_mark_of_a_run_with_two_attempts_is_shown_once() -> None:
    known = series([2.0, 2.1, 2.2], mark={1: "regression", 2: "regression"})
    known.points[2] = msgspec.structs.replace(known.points[2], run="r1")
    assert paint(history_lines([view_series(known)], [], 0, 80, False)).count("regression  run r1") == 1


def test_a_chart_marks_changes_alarms_and_words_where_they_are() -> None:
    verdicts = {40: "slower", 50: "failed", 59: "faster"}
    made = view_series(series(steps(2.0, 2.2), verdict=verdicts, mark={45: "false-alarm"}))
    chart = terminal_chart(made, 67, True)
    start = len(chart.rows[0][0]) + 1
    assert chart.axis[start:].index("1") == made.changes[0].index
    assert {sign: place for place, sign in enumerate(chart.events) if sign != " "} == {
        "↓": 40,
        "f": 45,
        "!": 50,
        "↑": 59,
    }
    assert chart.legend == "↓ slower, ↑ faster, f false-alarm, ! did not pass"
    assert sum("." in drawing for _, drawing in chart.rows) == 2


@pytest.mark.parametrize("ascii_only", [False, True])
def test_each_bound_has_its_own_row_and_label_however_far_away_a_run_is(ascii_only: bool) -> None:
    values = [2.0, 2.01, 1.99, 2.049, 1.951, 2.05, 1.95, 9.0, 2.0, 2.06]
    made = view_series(series(values), [Bound("step_time", 1.95, 2.05)])
    chart = terminal_chart(made, 30, ascii_only)
    line = "." if ascii_only else "┄"
    rows = {label.strip(): number for number, (label, drawing) in enumerate(chart.rows) if line in drawing}
    assert list(rows) == ["2.05", "1.95"]
    assert chart.rows[0][0].strip() == "9"
    assert bounds_outside(made) == []
    for place, value in enumerate(values):
        (row,) = (number for number, (_, drawing) in enumerate(chart.rows) if drawing[2 * place] not in f" {line}")
        assert (row < rows["2.05"], row > rows["1.95"]) == (value > 2.05, value < 1.95)


def test_bounds_a_few_percent_away_are_drawn_though_the_runs_are_much_nearer_together() -> None:
    tight = [2.0 + 0.0001 * (number % 3) for number in range(20)]
    made = view_series(series(tight))  # the floor makes its bound 1.5 % wide
    chart = terminal_chart(made, 80, False)
    assert sum("┄" in drawing for _, drawing in chart.rows) == 2
    assert spark(made).plot.bands
    assert series_bound_text(made).endswith("from the history)")


def test_a_bound_far_away_does_not_press_the_runs_flat_and_is_said_to_be_outside() -> None:
    far = view_series(series(steps(2.0)), [Bound("step_time", 0.0, 1000.0)])
    chart = terminal_chart(far, 80, False)
    assert sum(bool(drawing.strip()) for _, drawing in chart.rows) > 4
    assert "both are outside the chart" in paint(history_lines([far], [], 0, 100, False))
    half = view_series(series(steps(2.0)), [Bound("step_time", 0.0, 2.02)])
    assert "the lower bound is outside the chart" in paint(history_lines([half], [], 0, 100, False))
    assert "the lower bound is outside the chart" in render_series(RunSeries("r", [half], []))


def test_a_bound_that_is_not_in_use_is_not_drawn() -> None:
    off = Bound("step_time", 1.9, 2.1, state=BoundState.UNUSABLE, why="too wide")
    made = view_series(series(steps(2.0)), [off])
    assert not spark(made).plot.bands


METRICS = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=40)


@sample.untimed
@given(METRICS)
def test_whatever_the_metrics_are_they_can_be_drawn_and_told(values: list[float]) -> None:
    made = view_series(series(values))
    for ascii_only in (False, True):
        text = paint(history_lines([made], [], 0, 60, ascii_only), ascii_only=ascii_only)
        assert "step_time" in text
    drawn = spark(made)
    for path in drawn.paths(drawn.plot.curves[0], "s1").values():
        assert all(0 <= float(number) <= SPARK_WIDTH for number in re.findall(r"[-\d.e]+", path.replace("h0", " ")))
    assert len(sparkline(values, 20, False)) == min(20, len(values))


def test_many_series_are_drawn_by_need_and_the_others_listed() -> None:
    made = [with_changes(series(steps(2.0, seed=n), f"m{n:02}")) for n in range(20)]
    made.append(with_changes(series(steps(2.0, 2.2), "z-worse")))
    made.append(with_changes(series(steps(2.0), "z-alarm", verdict={29: "slower"})))
    first = ranked(made)
    assert [one.benchmark for one in first[:2]] == ["z-alarm", "z-worse"]
    text = paint(history_lines(first, [], 3, 100, False))
    assert f"{len(made) - MOST_DRAWN} more series" in text
    assert all(one.benchmark in text for one in made)
    assert "3 unchecked metrics not shown" in text


def test_hostile_names_and_reasons_do_nothing_in_a_terminal() -> None:
    mine = series(steps(2.0, 2.2), sample.HOSTILE, mark={3: "regression"}, mark_reason={3: sample.HOSTILE * 1000})
    mine = Series(mine.benchmark, "t", sample.HOSTILE, sample.HOSTILE, sample.HOSTILE, "lower", mine.points)
    alarm = Alarm(
        sample.HOSTILE, 0.0, sample.HOSTILE, "", "slower", sample.HOSTILE, sample.HOSTILE, "fixed", sample.HOSTILE
    )
    text = paint(history_lines([view_series(mine)], [alarm], 0, 80, False)) + paint(alarms_lines([alarm]))
    assert not set(text) & set("\x1b\x00\x08\u202e\x07")
    assert len(text) < 20_000


def hostile_run() -> RunSeries:
    points = series(steps(2.0, 2.2), commit={30: sample.HOSTILE}).points
    mine = view_series(Series(sample.HOSTILE, sample.HOSTILE, "f", sample.HOSTILE, sample.HOSTILE, "lower", points))
    return RunSeries(sample.HOSTILE, [mine], group_changes([mine]), 0, Precision(1, 1, 0))


def test_hostile_names_are_text_on_a_page() -> None:
    html = render_series(hostile_run())
    root = ElementTree.fromstring(f"<div>{html}</div>")
    text = "".join(root.itertext())
    assert "<script>alert('x')</script>" in text
    assert "{{ 7*7 }}" in text
    assert root.findall(".//script") == []
    assert root.findall(".//img") == []
    assert [name for element in root.iter() for name in element.attrib if name.startswith("on")] == []


def test_names_that_would_be_cut_to_the_same_text_are_below_their_benchmark() -> None:
    metrics = ["notebook first.ipynb fresh.seconds", "notebook first.ipynb restart.seconds"]
    benchmark = "works[runtime=built,machine=small]"
    views = [view_series(msgspec.structs.replace(series([1.0], benchmark), metric=one)) for one in metrics]
    lines = paint(history_lines(views, [], 0, 100, False), False).splitlines()
    assert lines[1] == f"  {benchmark}"
    assert [line.split("  ")[2] for line in lines[2:4]] == metrics


def test_a_page_shows_each_metric_with_its_bound_changes_and_alarms() -> None:
    made = view_series(series(steps(2.0, 2.2), verdict={40: "slower"}))
    html = render_series(RunSeries("r30", [made], group_changes([made]), 7, Precision(1, 0, 0)))
    root = ElementTree.fromstring(f"<div>{html}</div>")
    piece = root.find(".//div[@data-key='metric/0']")
    assert piece is not None
    plot = json.loads(piece.find(".//figure").attrib["data-plot"])  # type: ignore[union-attr]
    assert [len(plot[name]) for name in ("bands", "marks")] == [1, 1]  # the bounds and a change
    assert [state for *_, state, _ in plot["curves"][0]["points"] if state] == ["v-slower"]
    text = " ".join("".join(root.itertext()).split())
    assert "At commit c30 (21 Oct 2026), 1 series changed: 1 worse" in text
    assert "open regression since run r30" in text
    assert "and 7 more series" in text


def test_the_series_of_a_run_are_those_that_somebody_judges_with_alarms_first(tmp_path: Path) -> None:
    history = open_history(tmp_path / "history.db")
    unjudged = {"loss": 0.5, "step_time": {"value": 1.0, "unit": "s", "better": "lower"}}
    for number in range(8):
        last = number == 7
        cells = [
            timed(1.0, "a", at_s=number * 10.0, metrics=unjudged),
            timed(
                1.5 if last else 1.0, "b", Verdict.SLOWER if last else Verdict.PASSED, at_s=number * 10.0, benchmark="z"
            ),
        ]
        results = run(f"r{number}", *cells)
        history.add(results)
    history.add(run("other", timed(1.0, "c", fingerprint="beef0000")))
    made = run_series(history, results)
    assert [(one.benchmark, one.metric, len(one.points)) for one in made.series] == [
        ("z", "step_time", 8),
        ("t[n=a]", "step_time", 8),
    ]
    assert made.precision == Precision(1, 0, 0)
    given = Bound("step_time", 0.9, 1.1, source="bounds.yaml:3")
    with_bounds = run_series(history, results, {"z": (given,)})
    assert with_bounds.series[0].bound == given
    assert with_bounds.series[1].bound is not None


def test_a_run_with_very_many_metrics_says_how_many_were_not_looked_at(tmp_path: Path) -> None:
    history = open_history(tmp_path / "history.db")
    results = run("r", *(timed(1.0, f"{number:08x}") for number in range(MOST_OF_RUN + 5)))
    history.add(results)
    made = run_series(history, results)
    assert (len(made.series), made.left_out) == (MOST_OF_RUN, 5)


def test_the_series_of_a_run_are_kept_beside_its_results(tmp_path: Path) -> None:
    made = hostile_run()
    write_series(tmp_path, made)
    assert read_series(tmp_path) == made
    assert render_series(made) == render_series(read_series(tmp_path) or made)
    (tmp_path / "series.json").write_text("{")
    assert read_series(tmp_path) is None
    assert read_series(tmp_path / "nowhere") is None


def test_a_view_knows_its_name() -> None:
    assert SeriesView("b", "t", "f", "m", "s", "lower", [], []).name == "b m"


def test_commands_in_what_a_page_says_are_code() -> None:
    page = render_series(RunSeries("r", [view_series(series(steps(2.0)))], [], 0, Precision(1, 0, 0)))
    assert "<code>seatrial history mark RUN</code>" in page
    assert "`" not in page
    for why, told in (("`a <b>` & c", "<code>a &lt;b&gt;</code> &amp; c"), ("one ` & <b>", "one ` &amp; &lt;b&gt;")):
        off = Bound("step_time", state=BoundState.DISABLED, why=why, source="b.yaml:3")
        page = render_series(RunSeries("r", [view_series(series(steps(2.0)), [off])], []))
        assert f"<li>bounds from b.yaml:3 are disabled: {told}</li>" in page
