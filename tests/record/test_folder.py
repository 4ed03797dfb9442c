"""Run folders are found by id, beginning, path and `last`; files in them are whole or not there."""

import json
import os
from pathlib import Path

import pytest

from seatrial.job.plan import PlanFile
from seatrial.record import DamagedRun, RunFolder, UnknownRun, find_run, write_whole

PLAN = PlanFile([], [], price=1.5)


def planned(runs: Path, suite: str, age_s: int = 0) -> RunFolder:
    folder = RunFolder.create(runs, suite)
    folder.write_plan(PlanFile([], []))
    os.utime(folder.plan, (1e9 - age_s, 1e9 - age_s))
    return folder


def test_names_of_runs_tell_the_suite_and_are_safe_as_file_names(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "My Suite: ../../etc")
    assert folder.run.startswith("my-suite--------etc-20")
    assert folder.path.parent == tmp_path


def test_a_run_folder_is_there_when_its_plan_is_and_what_a_kill_left_before_goes(tmp_path: Path) -> None:
    killed = RunFolder.create(tmp_path, "killed")
    assert not killed.path.exists()
    (left,) = tmp_path.iterdir()
    os.utime(left, (1e9, 1e9))
    folder = planned(tmp_path, "next")
    assert list(tmp_path.iterdir()) == [folder.path]


def test_a_run_is_found_by_id_beginning_path_and_last(tmp_path: Path) -> None:
    older, newer = planned(tmp_path, "older", age_s=10), planned(tmp_path, "newer")
    assert find_run(tmp_path, older.run).run == older.run
    assert find_run(tmp_path, "old").run == older.run
    assert find_run(tmp_path, str(newer.path)).run == newer.run
    os.utime(older.path, (4e9, 4e9))  # it still runs, and writes
    assert find_run(tmp_path, "last").run == newer.run


def test_an_unknown_or_ambiguous_run_is_an_error_with_the_nearest(tmp_path: Path) -> None:
    one, two = planned(tmp_path, "nightly"), planned(tmp_path, "nightly")
    with pytest.raises(UnknownRun, match="matches 2 runs"):
        find_run(tmp_path, "night")
    with pytest.raises(UnknownRun, match=f"did you mean .*({one.run}|{two.run})"):
        find_run(tmp_path, one.run[:-1] + "?")
    with pytest.raises(UnknownRun, match="run not found: 'last'"):
        find_run(tmp_path / "empty", "last")


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.json"
    write_whole(path, b"old")

    def full(file: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["results.json"]


def test_a_plan_with_any_byte_changed_or_lost_is_damaged(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "suite")
    folder.write_plan(PLAN)
    whole = folder.plan.read_bytes()
    assert folder.read_plan() == PLAN
    for at in range(len(whole)):
        for changed in (bytes([whole[at] ^ 1]), b"\xff", b""):
            folder.plan.write_bytes(whole[:at] + changed + whole[at + 1 :])
            with pytest.raises(DamagedRun, match=r"plan\.json is damaged"):
                folder.read_plan()


def test_a_plan_that_another_program_wrote_again_is_damaged(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "suite")
    folder.write_plan(PLAN)
    folder.plan.write_text(json.dumps({**json.loads(folder.plan.read_bytes()), "bounds": {"a": 2.5}}))
    with pytest.raises(DamagedRun, match="checksum mismatch"):
        folder.read_plan()
