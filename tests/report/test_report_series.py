"""Series in reports: bounds and changes beside the runs, what moved together, charts for terminals and pages."""

import math
import random
from pathlib import Path
from xml.etree import ElementTree

import pytest
import sample
from hypothesis import given
from hypothesis import strategies as st

from record.past import run, timed
from seatrial.job import Bound, BoundState, Verdict
from seatrial.record.history import Alarm, Point, Series, open_history
from seatrial.report.lines import paint
from seatrial.report.series import (
    MOST_OF_RUN,
    Precision,
    RunSeries,
    SeriesView,
    changes_of,
    precision,
    read_series,
    run_series,
    together,
    view,
    write_series,
)
from seatrial.report.series_chart import sparkline, svg_chart, terminal_chart
from seatrial.report.series_html import render_series
from seatrial.report.series_lines import MOST_DRAWN, alarms_lines, history_lines, ranked
from seatrial.report.series_words import bound_text, day, figure, percent, precision_text, sure, together_text


def series(values: list[float], name: str = "llama", better: str = "lower", **of_points: dict[int, str]) -> Series:
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
    slower, higher = view(series(steps(2.0, 2.2))), view(series(steps(2.0, 2.2), better="higher"))
    (change,) = slower.changes
    assert (change.index, change.run, change.commit, change.way) == (30, "r30", "c30", "worse")
    assert change.size == pytest.approx(0.1, abs=0.01)
    assert (change.before, change.after) == (pytest.approx(2.0, rel=0.01), pytest.approx(2.2, rel=0.01))
    assert [change.way for change in higher.changes] == ["better"]
    assert [change.way for change in view(series(steps(2.0, 2.2), better="")).changes] == [""]


def test_changes_are_found_also_where_every_run_after_them_was_an_alarm() -> None:
    slower = dict.fromkeys(range(30, 60), "slower")
    made = view(series(steps(2.0, 2.2), verdict=slower))
    assert [change.run for change in made.changes] == ["r30"]
    assert made.left_out == {"out of bounds, and nobody has said why": 30}
    assert made.bound is not None
    assert made.bound.upper is not None
    assert made.bound.upper < 2.1


def test_a_failed_run_is_in_the_chart_but_in_no_level() -> None:
    values = steps(2.0)
    values[10:20] = [9.0] * 10
    made = view(series(values, verdict=dict.fromkeys(range(10, 20), "failed")))
    assert made.changes == []
    assert len(made.points) == 30
    assert made.left_out == {"the run failed": 10}


def test_the_bound_is_of_the_newest_sound_level_and_a_regression_stays_open() -> None:
    made = view(series(steps(2.0, 2.2)))
    assert made.bound is not None
    assert (made.bound.runs, made.bound.state, made.bound.since_s) == (30, BoundState.USABLE, 1.79e9)
    assert made.regression == "r30"
    assert made.bound.changed is not None
    assert made.bound.changed.run == "r30"
    assert view(series(steps(2.2, 2.0))).regression == ""


def test_a_word_of_a_person_changes_what_the_bound_is_made_from() -> None:
    values = steps(2.0, each=20)
    values[5] = 2.5
    alarm = {"verdict": {5: "slower"}}
    assert view(series(values, **alarm)).left_out == {"out of bounds, and nobody has said why": 1}
    assert view(series(values, **alarm, mark={5: "false-alarm"})).left_out == {}
    marked = view(series(values, **alarm, mark={5: "regression", 9: "fixed"})).left_out
    assert marked == {"marked as a regression": 1, "after a regression, not yet fixed": 3}


def test_the_bound_of_a_baseline_comes_before_that_of_the_history() -> None:
    given = Bound("step_time", 1.0, 3.0, source="bounds.yaml:4")
    assert view(series(steps(2.0)), [Bound("loss", 0.0, 1.0), given]).bound is given
    assert view(series(steps(2.0)), []).bound is None
    other = Bound("step_time", 1.0, 3.0, fingerprint="beef0000")
    assert view(series(steps(2.0)), [other]).bound is None


def test_too_few_runs_say_that_there_is_no_bound_yet() -> None:
    made = view(series([2.0, 2.1]))
    assert made.bound is not None
    assert made.bound.state is BoundState.RECORDING
    assert bound_text(made.bound).startswith("no bound yet from the history: ")


def test_series_that_moved_at_one_commit_are_told_in_one_sentence() -> None:
    three = [changes_of(series(steps(2.0, 2.2, seed=n), f"m{n}")) for n in (1, 2)]
    three.append(changes_of(series(steps(9.0, 9.9, seed=3), "m3", better="higher")))
    three.append(changes_of(series(steps(5.0, seed=4), "m4")))
    (group,) = together(three)
    assert (group.commit, group.run) == ("c30", "r30")
    said = together_text(group)
    assert said.startswith("At commit c30 (21 Oct 2026) 3 series moved: 2 worse by ")
    assert "(m1 step_time, m2 step_time); 1 better by " in said
    assert together(three, least=4) == []


def test_without_commits_series_are_grouped_by_run() -> None:
    none = dict.fromkeys(range(60), "")
    two = [changes_of(series(steps(2.0, 2.2, seed=n), f"m{n}", commit=none)) for n in (1, 2)]
    assert [together_text(group)[:11] for group in together(two)] == ["At run r30 "]


def test_runs_of_one_commit_are_one_group_though_the_runs_differ() -> None:
    same = {29: "same", 30: "same", 31: "same"}
    first = changes_of(series(steps(2.0, 2.2), "m1", commit=same))
    later = changes_of(series(steps(2.0, each=31) + steps(2.2, each=29), "m2", commit=same))
    assert [len(group.moved) for group in together([first, later])] == [2]


def test_precision_is_of_the_alarms_that_somebody_judged() -> None:
    words = ["regression", "fixed", "false-alarm", "", ""]
    found = precision(Alarm("r", 0.0, "b", "f", "slower", "", mark=word) for word in words)
    assert (found.alarms, found.confirmed, found.false, found.unjudged) == (5, 2, 1, 2)
    assert precision_text(found) == "5 alarms: 2 confirmed, 1 false, 2 not judged; precision 67 % of those judged"
    assert "none judged yet" in precision_text(Precision(1, 0, 0))
    assert precision_text(Precision(0, 0, 0)) == "no alarm was ever raised here"


def test_words_say_no_more_than_is_known() -> None:
    assert [figure(value, "s") for value in (2.4412, 0.0, 1e-9, 123456.0, None)] == [
        "2.441 s",
        "0 s",
        "1e-09 s",
        "123,456 s",
        "open",
    ]
    assert [percent(share) for share in (0.0312, -0.5, 99.0, 0.1)] == ["+3.1 %", "-50 %", "100 times", "+10 %"]
    assert [sure(value) for value in (0.5, 0.99996, 1.0, 0.9899)] == [
        "50 % sure",
        "> 99.9 % sure",
        "> 99.9 % sure",
        "98.9 % sure",
    ]
    assert [day(at_s) for at_s in (0.0, 1e300, None)] == ["1 Jan 1970", "at no known time", ""]


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("number", [1, 2, 7, 60, 190, 5000])
def test_a_chart_keeps_its_width_and_shows_the_highest_and_the_lowest(number: int, ascii_only: bool) -> None:
    values = [2.0 + 0.1 * math.sin(index) for index in range(number)]
    values[number // 2] = 9.0
    chart = terminal_chart(changes_of(series(values)), 80, ascii_only)
    assert {len(label) + 1 + len(drawing) for label, drawing in chart.rows} == {80 - 1}
    assert "9" in chart.rows[0][0]
    assert any(drawing.strip() for _, drawing in chart.rows)
    assert number == 1 or (chart.rows[0][1].strip() and chart.rows[-1][1].strip())
    assert not ascii_only or "".join(drawing for _, drawing in chart.rows).isascii()


def test_a_chart_marks_changes_alarms_and_words_where_they_are() -> None:
    verdicts = {40: "slower", 50: "failed", 59: "faster"}
    made = view(series(steps(2.0, 2.2), verdict=verdicts, mark={45: "false-alarm"}))
    chart = terminal_chart(made, 67, True)
    start = len(chart.rows[0][0]) + 1
    assert chart.axis[start:].index("1") == made.changes[0].index
    assert {sign: place for place, sign in enumerate(chart.events) if sign != " "} == {
        "↓": 40,
        "f": 45,
        "!": 50,
        "↑": 59,
    }
    assert chart.legend == "↓ slower, ↑ faster, f false-alarm, ! not good"
    assert sum("." in drawing for _, drawing in chart.rows) == 2


def test_a_bound_far_away_does_not_press_the_runs_flat() -> None:
    far = view(series(steps(2.0)), [Bound("step_time", 0.0, 1000.0)])
    chart = terminal_chart(far, 80, False)
    assert sum(bool(drawing.strip()) for _, drawing in chart.rows) > 4


FIGURES = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=40)


@sample.untimed
@given(FIGURES)
def test_whatever_the_figures_are_they_can_be_drawn_and_told(values: list[float]) -> None:
    made = view(series(values))
    for ascii_only in (False, True):
        text = paint(history_lines([made], [], 0, 60, ascii_only), ascii_only=ascii_only)
        assert "step_time" in text
    svg = svg_chart(made)
    assert all(0 <= float(number) <= 600 for pair in svg.line.split() for number in pair.split(","))
    assert len(sparkline(values, 20, False)) == min(20, len(values))


def test_many_series_are_drawn_by_need_and_the_others_listed() -> None:
    made = [changes_of(series(steps(2.0, seed=n), f"m{n:02}")) for n in range(20)]
    made.append(changes_of(series(steps(2.0, 2.2), "z-worse")))
    made.append(changes_of(series(steps(2.0), "z-alarm", verdict={29: "slower"})))
    first = ranked(made)
    assert [one.benchmark for one in first[:2]] == ["z-alarm", "z-worse"]
    text = paint(history_lines(first, [], 3, 100, False))
    assert f"{len(made) - MOST_DRAWN} more series" in text
    assert all(one.benchmark in text for one in made)
    assert "3 figures that nobody judges are not shown" in text


def test_hostile_names_and_reasons_do_nothing_in_a_terminal() -> None:
    mine = series(steps(2.0, 2.2), sample.HOSTILE, mark={3: "regression"}, mark_reason={3: sample.HOSTILE * 1000})
    mine = Series(mine.benchmark, "t", sample.HOSTILE, sample.HOSTILE, sample.HOSTILE, "lower", mine.points)
    alarm = Alarm(
        sample.HOSTILE, 0.0, sample.HOSTILE, "", "slower", sample.HOSTILE, sample.HOSTILE, "fixed", sample.HOSTILE
    )
    text = paint(history_lines([view(mine)], [alarm], 0, 80, False)) + paint(alarms_lines([alarm]))
    assert not set(text) & set("\x1b\x00\x08\u202e\x07")
    assert len(text) < 20_000


def hostile_run() -> RunSeries:
    points = series(steps(2.0, 2.2), commit={30: sample.HOSTILE}).points
    mine = view(Series(sample.HOSTILE, sample.HOSTILE, "f", sample.HOSTILE, sample.HOSTILE, "lower", points))
    return RunSeries(sample.HOSTILE, [mine], together([mine]), 0, Precision(1, 1, 0))


def test_hostile_names_are_text_on_a_page() -> None:
    html = render_series(hostile_run())
    root = ElementTree.fromstring(f"<div>{html}</div>")
    text = "".join(root.itertext())
    assert "<script>alert('x')</script>" in text
    assert "{{ 7*7 }}" in text
    assert root.findall(".//script") == []
    assert root.findall(".//img") == []
    assert [name for element in root.iter() for name in element.attrib if name.startswith("on")] == []


def test_a_page_shows_each_figure_with_its_bound_changes_and_alarms() -> None:
    made = view(series(steps(2.0, 2.2), verdict={40: "slower"}))
    html = render_series(RunSeries("r30", [made], together([made]), 7, Precision(1, 0, 0)))
    root = ElementTree.fromstring(f"<div>{html}</div>")
    assert len(root.findall(".//polyline")) == 1
    assert len(root.findall(".//line")) == 3  # two bounds and a change
    assert len(root.findall(".//circle")) == 1
    text = " ".join("".join(root.itertext()).split())
    assert "At commit c30 (21 Oct 2026) 1 series moved: 1 worse" in text
    assert "In this run." in text
    assert "A regression is open since run r30." in text
    assert "and 7 more series" in text


def test_a_run_without_figures_has_no_such_part() -> None:
    assert render_series(RunSeries("r", [], [])) == ""


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


def test_a_run_with_very_many_figures_says_how_many_were_not_looked_at(tmp_path: Path) -> None:
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
