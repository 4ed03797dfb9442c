"""The history in a SQLite file: every way in which the file can be bad, and how one of version 2 is taken over."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from past import VERSION_2, cell, run, timed

from seatrial.record.history import HistoryError, open_history

HERE = str(Path(__file__).parent)


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough " * 50, b"SQLite format 3\0" + bytes(4096)]
)
def test_garbage_is_one_clear_error_and_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(content)
    history = open_history(path)
    for use in (lambda: history.add(run("r1", cell("a", 1.0))), history.durations, history.series):
        with pytest.raises(HistoryError) as caught:
            use()
        assert caught.value.location == str(path)
        assert "Move it away" in str(caught.value)
    assert path.read_bytes() == content


def test_a_history_torn_in_the_middle_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    history = open_history(path)
    history.add(run("r1", *(cell(f"{n:08x}", 1.0) for n in range(500))))
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)
    for use in (history.durations, history.series):
        with pytest.raises(HistoryError, match=r"history\.db"):
            use()


def test_a_history_of_a_newer_seatrial_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    for use in (lambda: open_history(path).add(run("r1", cell("a", 1.0))), open_history(path).runs):
        with pytest.raises(HistoryError, match=r"newer Seatrial.*99.*Upgrade"):
            use()
    assert path.read_bytes() == before


def test_a_folder_in_its_place_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "history.db").mkdir()
    with pytest.raises(HistoryError):
        open_history(tmp_path / "history.db").add(run("r1", cell("a", 1.0)))
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match="Check the folder"):
        open_history(tmp_path / "file" / "history.db").add(run("r1", cell("a", 1.0)))


def mounted(folder: Path, options: str, code: str) -> str:
    """What a program says that sees a file system of its own at the folder."""
    if os.getuid() != 0 or not shutil.which("unshare"):
        pytest.skip("only root can mount a file system of its own")
    head = "import sys; sys.path.insert(0, sys.argv[1]); from past import *\n"
    head += "from seatrial.record.history import *; history = open_history(sys.argv[2] + '/history.db')\n"
    shell = f'mount -t tmpfs -o {options} none "$1" || exit 77; exec "$2" -c "$3" "$4" "$1"'
    argv = ["unshare", "--mount", "sh", "-c", shell, "sh", str(folder), sys.executable, head + code, HERE]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_full_disk_is_one_clear_error_and_keeps_what_was_there(tmp_path: Path) -> None:
    code = (
        "history.add(run('r1', timed(1.0)))\n"
        "try: history.add(run('r2', *(timed(1.0, f'{n:08x}') for n in range(5000))))\n"
        "except HistoryError as error: print(error)\n"
        "print([one.values for one in history.series()])"
    )
    said, kept = mounted(tmp_path, "size=1m", code).splitlines()
    assert "full" in said
    assert "Free space" in said
    assert kept == "[[1.0]]"


def test_a_history_that_may_only_be_read_can_be_read_and_says_so_when_written(tmp_path: Path) -> None:
    code = (
        "import subprocess\n"
        "history.add(run('r1', timed(1.0)))\n"
        "subprocess.run(['mount', '-o', 'remount,ro', sys.argv[2]], check=True)\n"
        "print([one.values for one in history.series()])\n"
        "try: history.add(run('r2', timed(1.0)))\n"
        "except HistoryError as error: print(error)\n"
    )
    kept, said = mounted(tmp_path, "size=4m", code).splitlines()
    assert kept == "[[1.0]]"
    assert "read-only" in said or "permissions" in said


def of_version_2(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(f"{VERSION_2} PRAGMA user_version = 2;")


def test_a_history_of_version_2_is_taken_over_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    of_version_2(path)
    history = open_history(path)
    assert history.durations() == {"aa": 4.0, "ab": 6.0}
    (peak,) = history.filled(history.names("works"))
    assert (peak.benchmark, peak.metric, peak.unit, peak.better) == ("works[n=1]", "peak", "MiB", "")
    assert peak.values == [12.0, 13.0, 14.0]
    assert [(point.run, point.verdict, point.host, point.mark) for point in peak.points] == [
        ("r1", "passed", "node-1", ""),
        ("r1", "passed", "node-2", ""),
        ("r2", "failed", "node-1", "regression"),
    ]
    assert peak.points[1].id == "works[n=1,repeat=2]"
    assert [(one.run, one.verdict, one.commit) for one in history.runs()] == [
        ("r1", "passed", "c0ffee"),
        ("r2", "failed", ""),
    ]
    assert history.benchmarks("r2") == ["works[n=1]"]
    assert rows(path, "SELECT flaky, why FROM cells ORDER BY run, hash") == [(0, ""), (1, ""), (0, "because")]


def test_what_is_added_after_the_migration_is_one_series_with_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    of_version_2(path)
    metrics = {"peak": {"value": 15, "unit": "MiB"}}
    new = cell("aa", 1.0, id="works[n=1,repeat=1]", trial="works", started_s=300.0, metrics=metrics)
    open_history(path).add(run("r3", new))
    assert open_history(path).series(metric="peak")[0].values == [12.0, 13.0, 14.0, 15.0]


def test_several_processes_take_over_a_history_of_version_2_at_once(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    of_version_2(path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from past import *\n"
        "from seatrial.record.history import open_history; open_history(sys.argv[2]).add(run(sys.argv[3], timed(1.0)))"
    )
    all_of_them = [subprocess.Popen([sys.executable, "-c", code, HERE, path, f"n{number}"]) for number in range(4)]
    assert [one.wait() for one in all_of_them] == [0, 0, 0, 0]
    history = open_history(path)
    assert history.filled(history.names("works"))[0].values == [12.0, 13.0, 14.0]
    assert len(history.runs()) == 6


def test_a_migration_killed_in_the_middle_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    of_version_2(path)
    code = (
        "import os, sys; from seatrial.record.history import open_history, schema\n"
        "schema.cell_number = lambda *parts: os.kill(os.getpid(), 9)\n"
        "open_history(sys.argv[1]).runs()"
    )
    assert subprocess.run([sys.executable, "-c", code, path]).returncode == -9
    assert rows(path, "PRAGMA user_version") == [(2,)]
    assert open_history(path).series(metric="peak")[0].values == [12.0, 13.0, 14.0]


def test_series_and_durations_of_a_large_history_use_an_index(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    open_history(path).add(run("r1", timed(1.0)))

    def plan(query: str) -> str:
        return "; ".join(str(row[3]) for row in rows(path, f"EXPLAIN QUERY PLAN {query}"))

    points = "SELECT value FROM points WHERE series = 1 ORDER BY at_s DESC, run DESC, hash DESC LIMIT 400"
    assert plan(points) == "SEARCH points USING PRIMARY KEY (series=?)"
    assert "series_of_trial" in plan("SELECT id FROM series WHERE trial = 't'")
    assert "cells_with_alarm" in plan("SELECT run FROM cells WHERE verdict IN ('slower', 'faster') ORDER BY at_s")
    last = (
        "SELECT seconds FROM attempts WHERE hash = 'a' AND verdict IN ('passed', 'xfail')"
        " AND seconds IS NOT NULL ORDER BY started_s DESC LIMIT 20"
    )
    assert "attempts_that_passed" in plan(last)


def test_words_of_version_2_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    history = open_history(path)
    history.add(run("r1", timed(1.0)))
    old = "CREATE TABLE marks (run TEXT, benchmark TEXT, at_s REAL, word TEXT, reason TEXT, said_by TEXT)"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            f"DROP TABLE marks; {old}; DROP TABLE settings; DROP INDEX cells_by_id; "
            "ALTER TABLE cells DROP COLUMN under_test; "
            "DROP INDEX cells_through_time; DROP TABLE causes; ALTER TABLE cells DROP COLUMN cell;"
            "ALTER TABLE cells DROP COLUMN headline; ALTER TABLE cells DROP COLUMN cause;"
            "ALTER TABLE series DROP COLUMN checked; DROP INDEX cells_in_trouble;"
            "ALTER TABLE runs DROP COLUMN counts; ALTER TABLE runs DROP COLUMN targets; PRAGMA user_version = 2;"
        )
        connection.execute("INSERT INTO marks VALUES ('r1', 't[n=a]', 5.0, 'fixed', 'why', 'ann')")
        connection.commit()
    (mark,) = history.marks()
    assert (mark.run, mark.benchmark, mark.metric, mark.label, mark.by) == ("r1", "t[n=a]", "", "fixed", "ann")
    assert history.series()[0].points[0].mark == "fixed"
    (found,) = history.runs()
    assert (found.counts, found.targets) == ({"passed": 1, "flaky": 0}, ["here"]), "counted again from the cells"
