"""The history by suite: its newest runs, its cells in them, and one cell through time."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
from past import cell, run

from seatrial.job import Verdict
from seatrial.record.history import History, open_history


def filled(place: str | Path) -> History:
    history = open_history(place)
    for night in range(4):
        bad = cell("bbbbbbbb", 1.0, verdict=Verdict.FAILED, id="t[n=b]", why=f"night {night}")
        cells = [cell(f"{night}aaaaaaa", 1.0, id="t[n=a]"), bad]
        history.add(run(f"nightly-{night}", *cells, started_s=1000.0 * night, commit=f"c{night}"))
    history.add(msgspec.structs.replace(run("weekly-0", cell("bbbbbbbb", 2.0, id="t[n=b]")), suite="weekly"))
    return history


def test_suites_are_told_with_their_newest_runs(place: str) -> None:
    found = filled(place).suites(last=3)
    assert [(one.suite, one.runs) for one in found] == [("suite", 4), ("weekly", 1)]
    assert [one.run for one in found[0].recent] == ["nightly-1", "nightly-2", "nightly-3"]
    assert filled(place).suite_runs("suite", 2)[0].commit == "c2"


def test_of_too_many_cells_those_of_the_last_whole_runs_are_read(place: str) -> None:
    history = filled(place)
    names = [one.run for one in history.suite_runs("suite", 10)]
    assert len(history.cells_of_runs(names, most=100)) == 8
    assert {one.run for one in history.cells_of_runs(names, most=5)} == {"nightly-2", "nightly-3"}
    assert {one.run for one in history.cells_of_runs(names, most=1)} == {"nightly-3"}, "never none at all"


def test_a_cell_is_followed_by_its_id_although_its_hash_changes(place: str) -> None:
    history = filled(place)
    by_hash = history.past_cells("suite", "2aaaaaaa", last=10)
    assert [one.run for one in by_hash] == [f"nightly-{night}" for night in range(4)]
    assert history.past_cells("suite", "t[n=a]", last=10) == by_hash
    assert [one.reason for one in history.past_cells("suite", "bbbbbbbb", last=2)] == ["night 2", "night 3"]
    assert [one.run for one in history.past_cells("weekly", "bbbbbbbb", last=9)] == ["weekly-0"], "of this suite alone"
    assert history.past_cells("suite", "00000000", last=1) == []
    assert history.past_cells("suite", "t[n=a]", 2, before="nightly-3") == by_hash[1:3]
    assert [one.run for one in history.suite_runs("suite", 9, before="nightly-2")] == ["nightly-0", "nightly-1"]


def test_a_run_is_known_by_its_name(place: str) -> None:
    history = filled(place)
    found = history.run("nightly-3")
    assert found is not None
    assert (found.suite, found.at_s) == ("suite", 3000.0)
    assert [one.id for one in history.run_cells("nightly-3", most=9)] == ["t[n=a]", "t[n=b]"]
    assert history.run("nightly-9") is None


def test_a_cell_is_found_without_reading_all_others(tmp_path: Path) -> None:
    filled(tmp_path / "history.db")
    with closing(sqlite3.connect(tmp_path / "history.db")) as connection:
        plan = connection.execute("EXPLAIN QUERY PLAN SELECT run FROM cells WHERE id = 'x'").fetchall()
    assert "cells_by_id" in plan[0][3]
