"""The history: what it keeps, several writers at once, and every way in which its file can be bad."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.job import Attempt, CellResult, Exit, Outcome, Place, RunResults, Stage, StageTime, Verdict
from seatrial.record.history import HistoryError, add, durations, numbers


def cell(hash_: str, *seconds: float, verdict: Verdict = Verdict.PASSED, started_s: float = 1000.0) -> CellResult:
    attempts = [
        Attempt(
            number=number,
            place=Place("here", "small", "node-1"),
            stages=[StageTime(Stage.STARTED, started_s + number, "agent")],
            exit=Exit(Outcome.EXITED, 0),
            verdict=verdict,
            seconds=took,
        )
        for number, took in enumerate(seconds, 1)
    ]
    metrics = {"peak": {"value": 12, "unit": "MiB"}, "steps": {"import numpy": {"seconds": 0.5}}, "python": "3.11"}
    return CellResult(f"t[n={hash_}]", hash_, {"n": hash_}, verdict, trial="t", attempts=attempts, metrics=metrics)


def run(name: str, *cells: CellResult, started_s: float = 1000.0) -> RunResults:
    return RunResults(1, name, "suite", Verdict.PASSED, list(cells), started_s=started_s, seconds=9.0)


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def test_a_missing_history_is_empty_and_is_not_created_by_asking(tmp_path: Path) -> None:
    assert durations(tmp_path / "history.db") == {}
    assert list(tmp_path.iterdir()) == []


def test_adding_a_run_again_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "history.db"
    add(path, run("r1", cell("a", 1.0), cell("b", 2.0)))
    add(path, run("r1", cell("a", 5.0)))
    assert durations(path) == {"a": 5.0}
    assert rows(path, "SELECT run, hash FROM cells") == [("r1", "a")]
    assert rows(path, "SELECT count(*) FROM metrics") == [(2,)]


def test_figures_are_kept_with_their_units_and_text_is_not_a_figure(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    add(path, run("r1", cell("a", 1.0)))
    found = rows(path, "SELECT hash, name, started_s, value, unit FROM metrics ORDER BY name")
    assert found == [("a", "peak", 1001.0, 12.0, "MiB"), ("a", "steps.import numpy.seconds", 1001.0, 0.5, "")]
    assert list(numbers({"a": True, "b": float("nan"), "c": float("inf"), "d": None, "e": [1], "f": 2})) == [
        ("f", 2.0, "")
    ]


def test_durations_are_the_median_of_the_last_twenty_that_ended_as_they_should(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    for number in range(30):
        add(path, run(f"r{number}", cell("a", float(number), started_s=number * 100.0)))
    add(path, run("bad", cell("a", 9999.0, verdict=Verdict.FAILED, started_s=99999.0)))
    add(path, run("known", cell("b", 3.0, verdict=Verdict.XFAIL)))
    assert durations(path) == {"a": 19.5, "b": 3.0}
    assert durations(path, ["b", "unknown"]) == {"b": 3.0}


def test_many_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; from test_history import *\n"
        "for n in range(10): add(Path(sys.argv[2]), run(f'{sys.argv[3]}-{n}', cell('a', 1.0)))"
    )
    here = str(Path(__file__).parent)
    writers = [subprocess.Popen([sys.executable, "-c", program, here, str(path), str(n)]) for n in range(4)]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    assert rows(path, "SELECT count(*) FROM runs") == [(40,)]
    assert rows(path, "SELECT count(*) FROM attempts") == [(40,)]


def test_a_reader_is_not_stopped_by_a_writer_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    add(path, run("r1", cell("a", 1.0)))
    writer = sqlite3.connect(path, isolation_level=None)
    try:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM runs")
        assert durations(path) == {"a": 1.0}
    finally:
        writer.close()


def test_a_writer_killed_in_the_middle_leaves_the_history_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    add(path, run("r1", cell("a", 1.0)))
    program = (
        "import os, sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE')\n"
        "c.execute('DELETE FROM attempts'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert durations(path) == {"a": 1.0}
    add(path, run("r2", cell("a", 3.0)))
    assert durations(path) == {"a": 2.0}


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough " * 50, b"SQLite format 3\0" + bytes(4096)]
)
def test_a_corrupted_history_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(content)
    for use in (lambda: add(path, run("r1", cell("a", 1.0))), lambda: durations(path)):
        with pytest.raises(HistoryError) as caught:
            use()
        assert caught.value.path == path
        assert "Move it away" in str(caught.value)
    assert path.read_bytes() == content


def test_a_history_torn_in_the_middle_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    add(path, run("r1", *(cell(f"{n:08x}", 1.0) for n in range(500))))
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(HistoryError, match=r"history\.db"):
        durations(path)


def test_a_history_of_a_newer_seatrial_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(HistoryError, match=r"newer Seatrial.*99"):
        add(path, run("r1", cell("a", 1.0)))


def test_a_folder_in_its_place_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "history.db").mkdir()
    with pytest.raises(HistoryError):
        add(tmp_path / "history.db", run("r1", cell("a", 1.0)))
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match="Check the folder"):
        add(tmp_path / "file" / "history.db", run("r1", cell("a", 1.0)))


def test_series_and_durations_of_a_large_history_use_an_index(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    add(path, run("r1", cell("a", 1.0)))
    series = (
        "EXPLAIN QUERY PLAN SELECT started_s, value FROM metrics WHERE hash = 'a' AND name = 'peak' ORDER BY started_s"
    )
    assert [str(row[3]) for row in rows(path, series)] == ["SEARCH metrics USING PRIMARY KEY (hash=? AND name=?)"]
    last = (
        "EXPLAIN QUERY PLAN SELECT seconds FROM attempts WHERE hash = 'a' AND verdict IN ('passed', 'xfail')"
        " AND seconds IS NOT NULL ORDER BY started_s DESC LIMIT 20"
    )
    assert ["attempts_that_passed" in str(row[3]) for row in rows(path, last)] == [True]
