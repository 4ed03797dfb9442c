"""The history, on SQLite and on PostgreSQL alike: what it keeps, what it answers, several writers, hostile text."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from past import METRICS, cell, run, timed

from seatrial.job import Verdict, flatten_metrics
from seatrial.record.history import History, HistoryError, open_history

HERE = str(Path(__file__).parent)


def values(history: History, **which: str) -> dict[str, list[float]]:
    return {f"{one.benchmark} {one.metric}": one.values for one in history.series(**which)}


def program(code: str, place: str, *args: str) -> subprocess.Popen[bytes]:
    head = "import sys; sys.path.insert(0, sys.argv[1]); from past import *\n"
    head += "from seatrial.record.history import open_history; history = open_history(sys.argv[2])\n"
    return subprocess.Popen([sys.executable, "-c", head + code, HERE, place, *args])


def test_where_nothing_is_yet_the_history_is_empty_and_asking_creates_nothing(place: str) -> None:
    history = open_history(place)
    assert (
        history.durations(),
        history.series(),
        history.filled(history.names(run="r")),
        history.runs(),
        history.trials(),
    ) == (
        {},
        [],
        [],
        [],
        [],
    )
    assert (history.alarms(), history.marks(), history.benchmarks("r")) == ([], [], [])
    assert "://" in place or not Path(place).parent.exists()


def test_adding_a_run_again_replaces_it(place: str) -> None:
    history = open_history(place)
    history.add(run("r1", cell("a", 1.0), cell("b", 2.0)))
    history.add(run("r1", cell("a", 5.0)))
    assert history.durations() == {"a": 5.0}
    assert history.benchmarks("r1") == ["t[n=a]"]
    assert [len(one.points) for one in history.series()] == [1, 1]
    assert [one.run for one in history.runs()] == ["r1"]


def test_metrics_are_kept_with_all_that_is_known_of_them(place: str) -> None:
    history = open_history(place)
    history.add(run("r1", timed(2.5, at_s=50.0), commit="c0ffee"))
    (series,) = history.series()
    assert (series.benchmark, series.trial, series.fingerprint) == ("t[n=a]", "t", "f00d0000")
    assert (series.metric, series.unit, series.better) == ("step_time", "s", "lower")
    (point,) = series.points
    assert (point.run, point.at_s, point.value, point.verdict) == ("r1", 51.0, 2.5, "passed")
    assert (point.commit, point.host, point.id, point.source) == ("c0ffee", "node-1", "t[n=a]", "log")
    assert (point.good, point.alarm) == (True, False)


def test_what_is_not_a_finite_number_is_no_metric() -> None:
    found = list(
        flatten_metrics({**METRICS, "a": True, "b": float("nan"), "c": float("inf"), "d": None, "e": [1], "f": 2})
    )
    assert [(one.name, one.value, one.unit) for one in found] == [
        ("peak", 12.0, "MiB"),
        ("steps.import numpy.seconds", 0.5, ""),
        ("f", 2.0, ""),
    ]
    odd = {"big": 10**400, "group": {"value": "nan", "unit": "s"}, "odd": {"value": 1, "better": "sideways"}}
    assert [(one.name, one.better) for one in flatten_metrics(odd)] == [("odd", None)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.dictionaries(
        st.text(max_size=5) | st.sampled_from(["value", "unit", "better"]), inner, max_size=4
    ),
)


@settings(max_examples=200, database=None)
@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5))
def test_whatever_a_kind_calls_metrics_gives_finite_metrics(metrics: dict[str, object]) -> None:
    for metric in flatten_metrics(metrics):
        assert abs(metric.value) < float("inf")
        assert metric.better in (None, "lower", "higher")


def test_durations_are_the_median_of_the_last_twenty_that_ended_as_they_should(place: str) -> None:
    history = open_history(place)
    for number in range(30):
        history.add(run(f"r{number}", cell("a", float(number), started_s=number * 100.0)))
    history.add(run("bad", cell("a", 9999.0, verdict=Verdict.FAILED, started_s=99999.0)))
    history.add(run("known", cell("b", 3.0, verdict=Verdict.XFAIL)))
    assert history.durations() == {"a": 19.5, "b": 3.0}


def test_series_of_two_fingerprints_units_or_benchmarks_never_mix(place: str) -> None:
    history = open_history(place)
    other_unit = timed(2000.0, metrics={"step_time": {"value": 2000.0, "unit": "ms", "better": "lower"}})
    history.add(run("r1", timed(1.0)))
    history.add(run("r2", timed(2.0, fingerprint="beef0000")))
    history.add(run("r3", other_unit))
    history.add(run("r4", timed(3.0, benchmark="llama")))
    assert [one.values for one in history.series()] == [[3.0], [2.0], [2000.0], [1.0]]
    assert [one.values for one in history.series() if one.fingerprint == "beef0000"] == [[2.0]]
    assert values(history, benchmark="llama") == {"llama step_time": [3.0]}
    assert history.series(metric="step") == []


def test_repeats_are_points_of_one_series_in_the_order_of_time(place: str) -> None:
    history = open_history(place)
    for number in (2, 1, 3):
        cells = [
            timed(number + repeat / 10, f"h{repeat}", at_s=number * 100.0 + repeat, id=f"t[m=x,repeat={repeat}]")
            for repeat in (1, 2)
        ]
        history.add(run(f"r{number}", *cells, started_s=number * 100.0))
    (series,) = history.filled(history.names("t"))
    assert series.benchmark == "t[m=x]"
    assert series.values == [1.1, 1.2, 2.1, 2.2, 3.1, 3.2]
    assert series.points[0].id == "t[m=x,repeat=1]"
    assert [one.values for one in history.series(last=3)] == [[2.2, 3.1, 3.2]]
    assert history.filled(history.names(run="r1")) == [series]
    assert [row.run for row in history.runs()] == ["r1", "r2", "r3"]
    assert [row.run for row in history.runs(last=2)] == ["r2", "r3"]


def test_a_trial_is_listed_with_what_there_is_of_it(place: str) -> None:
    history = open_history(place)
    history.add(run("r1", timed(1.0), cell("b", 1.0, trial="u", metrics={}), started_s=10.0))
    history.add(run("r2", timed(1.0), timed(2.0, "c"), started_s=20.0))
    found = [(one.trial, one.runs, one.benchmarks, one.series, one.first_s, one.last_s) for one in history.trials()]
    assert found == [("t", 2, 2, 2, 10.0, 20.0), ("u", 1, 0, 0, 10.0, 10.0)]


def test_the_last_word_of_a_person_counts_and_stays_when_the_run_is_added_again(place: str) -> None:
    history = open_history(place)
    slower = run("r1", timed(2.0, verdict=Verdict.SLOWER), timed(9.0, "b", verdict=Verdict.SLOWER))
    history.add(slower)

    def words() -> list[str]:
        return [one.points[0].mark for one in history.series()]

    assert words() == ["", ""]
    history.mark("r1", None, "regression", "the driver", "ann", 1.0)
    assert words() == ["regression", "regression"]
    history.mark("r1", "t[n=b]", "false-alarm", "a noisy host", "bob", 2.0)
    assert words() == ["regression", "false-alarm"]
    history.add(slower)
    assert words() == ["regression", "false-alarm"]
    found = history.alarms()
    assert [(one.benchmark, one.mark, one.mark_by) for one in found] == [
        ("t[n=a]", "regression", "ann"),
        ("t[n=b]", "false-alarm", "bob"),
    ]
    assert found[0].why == "2.0 s is out of bounds"
    history.mark("r1", "t[n=b]", "", "never mind", "bob", 3.0)
    assert words() == ["regression", ""]
    history.mark("r1", None, "fixed", "all of it", "ann", 4.0)
    assert words() == ["fixed", "fixed"]
    assert [mark.label for mark in history.marks()] == ["regression", "false-alarm", "", "fixed"]
    with pytest.raises(ValueError, match="maybe"):
        history.mark("r1", None, "maybe", "", "", 5.0)


def test_repeats_of_a_benchmark_raise_one_alarm(place: str) -> None:
    history = open_history(place)
    repeats = [timed(2.0, f"h{n}", verdict=Verdict.SLOWER, id=f"t[repeat={n}]") for n in (1, 2, 3)]
    history.add(run("r1", *repeats, timed(1.0, "ok"), timed(1.0, "x", verdict=Verdict.FAILED)))
    assert [(one.benchmark, one.verdict) for one in history.alarms()] == [("t", "slower")]


@pytest.mark.postgres
def test_both_databases_give_the_same_answers(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    two = [open_history(tmp_path / "h.db"), open_history(request.getfixturevalue("postgres").database())]
    for history in two:
        for number in range(12):
            verdict = (Verdict.PASSED, Verdict.SLOWER, Verdict.FAILED, Verdict.XFAIL)[number % 4]
            cells = [timed(number / 3, h, verdict, number * 1e8 / 7, "higher") for h in "ab"]
            history.add(run(f"r{number:02}", *cells, cell("c", 0.1, 0.2), started_s=1e9 + number / 9, commit="é" * 9))
        history.mark("r05", "t[n=a]", "false-alarm", "why\nnot", "ann", 1e9 / 3)
    left, right = two
    assert left.series() == right.series()
    assert left.filled(left.names("t"), last=5) == right.filled(right.names("t"), last=5)
    assert left.filled(left.names(run="r03"), 2) == right.filled(right.names(run="r03"), 2)
    assert (left.runs(), left.trials(), left.alarms()) == (right.runs(), right.trials(), right.alarms())
    assert (left.durations(), left.marks()) == (right.durations(), right.marks())
    assert len(left.series()) == 4


def test_many_writers_at_once_lose_nothing(place: str) -> None:
    """The first of them also creates the tables, at the same time."""
    writers = [
        program("for n in range(10): history.add(run(f'{sys.argv[3]}-{n}', timed(1.0)))", place, str(n))
        for n in range(4)
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    history = open_history(place)
    assert len(history.runs()) == 40
    assert [len(one.points) for one in history.series()] == [40]


def test_several_writers_of_one_run_leave_it_whole(place: str) -> None:
    writers = [
        program("for n in range(10): history.add(run('same', cell('a', 1.0), cell('b', 1.0)))", place) for _ in range(3)
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    history = open_history(place)
    assert history.benchmarks("same") == ["t[n=a]", "t[n=b]"]
    assert [len(one.points) for one in history.series()] == [1, 1, 1, 1]


def test_a_reader_is_not_stopped_by_a_writer_in_the_middle(place: str) -> None:
    history = open_history(place)
    history.add(run("r1", cell("a", 1.0)))
    begun, read = threading.Event(), threading.Event()

    def slowly(session) -> None:  # type: ignore[no-untyped-def]
        session.execute("DELETE FROM runs")
        begun.set()
        assert read.wait(60)

    writer = threading.Thread(target=history.database.write, args=(slowly,))
    writer.start()
    try:
        assert begun.wait(60)
        assert history.durations() == {"a": 1.0}
    finally:
        read.set()
        writer.join()
    assert history.durations() == {}


def test_a_writer_killed_in_the_middle_leaves_the_history_as_it_was(place: str) -> None:
    history = open_history(place)
    history.add(run("r1", cell("a", 1.0)))
    code = (
        "import os\n"
        "def die(session): session.execute('DELETE FROM runs'); os.kill(os.getpid(), 9)\n"
        "history.database.write(die)"
    )
    assert program(code, place).wait() == -9
    assert history.durations() == {"a": 1.0}
    history.add(run("r2", cell("a", 3.0)))
    assert history.durations() == {"a": 2.0}


def test_a_writer_that_fails_in_the_middle_changes_nothing(place: str) -> None:
    history = open_history(place)
    history.add(run("r1", cell("a", 1.0)))

    def fails(session) -> None:  # type: ignore[no-untyped-def]
        session.execute("DELETE FROM runs")
        session.execute("INSERT INTO no_such_table VALUES (1)")

    with pytest.raises(HistoryError, match="no_such_table"):
        history.database.write(fails)
    assert history.durations() == {"a": 1.0}


HOSTILE = [
    "nul \0 nul",
    "half \ud800 pair",
    "'; DROP TABLE runs; --",
    "%s ? %(x)s {0} \\",
    "\x1b[31m \u202e \ufffe \U0001f6a2 漢字 \r\n",
    "x" * 1_000_000,
    "漢" * 100_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=["nul", "surrogate", "sql", "percent", "escapes", "long", "wide"])
def test_hostile_text_is_kept_and_found_again_wherever_it_stands(place: str, text: str) -> None:
    history = open_history(place)
    metrics = {text: {"value": 1.0, "unit": text, "better": "lower", "source": text}}
    one = timed(
        1.0, id=f"t[n={text}]", trial=text, kind=text, benchmark=text, fingerprint=text, metrics=metrics, why=text
    )
    other = timed(2.0, "b", trial=text + ".", benchmark=text + ".", verdict=Verdict.SLOWER)
    history.add(run(text, one, other, commit=text))
    history.mark(text, text, "regression", text, text, 1.0)
    (series,) = history.series(benchmark=text, metric=text)
    assert history.filled(history.names(text)) == [series]
    assert series.values == [1.0]
    assert series.points[0].mark == "regression"
    assert [len(found.points) for found in history.series(benchmark=text + ".")] == [1]
    assert len(history.runs()) == 1
    assert len(history.alarms()) == 1
    if text.isprintable():
        assert history.marks()[0].reason.startswith(text[:100_000])


def test_metrics_at_the_edge_of_what_a_number_can_be_come_back_as_they_were(place: str) -> None:
    history = open_history(place)
    edges = [5e-324, 1.7976931348623157e308, -0.0, 0.1 + 0.2, 2.0**53 + 2]
    for number, value in enumerate(edges):
        history.add(run(f"r{number}", timed(value, at_s=float(number))))
    assert [one.values for one in history.series()] == [edges]


def test_a_place_that_is_neither_file_nor_server_is_refused() -> None:
    with pytest.raises(HistoryError, match=r"mysql://ann:\*\*\*@db/x: neither"):
        open_history("mysql://ann:hush@db/x")


def test_series_can_be_named_before_their_points_are_read(place: str) -> None:
    history = open_history(place)
    metrics = {"loss": 0.5, "step_time": {"value": 1.0, "unit": "s", "better": "lower"}}
    history.add(run("r1", timed(1.0, metrics=metrics), timed(1.0, "b", trial="u")))
    history.add(run("r2", timed(2.0, metrics=metrics, at_s=9.0)))
    named = [(one.benchmark, one.metric, one.points) for one in history.names()]
    assert named == [("t[n=a]", "loss", []), ("t[n=a]", "step_time", []), ("t[n=b]", "step_time", [])]
    assert [one.benchmark for one in history.names(trial="u")] == ["t[n=b]"]
    judged = history.names(run="r2", judged=True)
    assert [(one.benchmark, one.metric) for one in judged] == [("t[n=a]", "step_time")]
    assert [len(one.points) for one in history.filled(judged)] == [2]
    assert history.filled([]) == []
    history.add(run("r2"))
    assert history.names(run="r2") == []


def test_an_accepted_level_settles_its_alarms_and_ends_a_regression_that_was_marked_before(place: str) -> None:
    history = open_history(place)
    for number in range(6):
        verdict = Verdict.SLOWER if number >= 2 else Verdict.PASSED
        metrics = {name: {"value": 1.0 + number, "better": "lower"} for name in ("peak", "step_time")}
        repeats = [
            timed(0.0, hash_, verdict, number * 10.0, id=f"t[repeat={hash_}]", metrics=metrics) for hash_ in "12"
        ]
        history.add(run(f"r{number}", *repeats, started_s=number * 10.0))

    def said(metric: str) -> list[tuple[str, bool]]:
        (series,) = history.series(metric=metric)
        return [(point.mark, point.accepted) for point in series.points]

    history.mark("r3", "t", "regression", "the driver", "ann", 45.0)
    assert said("step_time")[6:8] == [("regression", False)] * 2
    history.mark("r2", "t", "accepted", "we keep the driver", "bob", 46.0, "step_time")
    out, settled = ("", False), ("", True)
    assert said("step_time") == [out] * 4 + [("accepted", True)] + [settled] * 5 + [out] * 2
    assert said("peak")[6:8] == [("regression", False)] * 2
    assert [(alarm.run, alarm.mark, alarm.mark_by) for alarm in history.alarms()] == [
        ("r2", "accepted", "bob"),
        ("r3", "regression", "ann"),  # it was right; that it was accepted later takes nothing from that
        ("r4", "accepted", "bob"),
        ("r5", "", ""),  # raised after that word
    ]
    history.mark("r2", None, "", "not that run", "bob", 60.0)
    assert said("step_time")[4:8] == [out] * 2 + [("regression", False)] * 2
    with pytest.raises(ValueError, match="not to a single metric 'peak'"):
        history.mark("r2", "t", "fixed", "", "bob", 61.0, "peak")


def test_a_level_is_accepted_for_its_own_configuration_alone(place: str) -> None:
    history = open_history(place)
    history.add(run("r1", timed(2.0, verdict=Verdict.SLOWER, at_s=10.0)))
    history.add(run("r2", timed(2.0, verdict=Verdict.SLOWER, at_s=20.0, fingerprint="beef0000")))
    history.mark("r1", "t[n=a]", "accepted", "as it is", "ann", 30.0)
    assert [alarm.mark for alarm in history.alarms()] == ["accepted", ""]
