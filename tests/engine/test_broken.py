"""A bug of Seatrial's own, or of a plugin, is that of one cell: it is reported with its traceback, tried once, and the
run does not end well. And journals of another form are refused in plain words."""

import json
import signal
import zlib
from pathlib import Path

import pytest
from asking import WAIT_S, until
from far_world import PLUGINS

from seatrial.job import Verdict
from world import World


@pytest.fixture
def breaking(world: World) -> World:
    world.env["PYTHONPATH"] = str(PLUGINS)
    world.suite("name: b\ntrials: {t: {kind: breaking, matrix: {where: [nowhere, parts, judge, findings]}}}\n")
    return world


def test_a_bug_in_one_cell_is_reported_with_its_traceback_and_leaves_the_others_alone(breaking: World) -> None:
    breaking.seatrial("run", "suite.yaml", "--select", "where=nowhere", check=0)
    breaking.seatrial("run", "suite.yaml", check=1)
    cells = {cell.axes["where"]: cell for cell in breaking.results().cells}
    assert cells["nowhere"].verdict is Verdict.PASSED
    for where in ("parts", "judge"):
        assert cells[where].verdict is Verdict.INVALID
        assert len(cells[where].attempts) == 1  # trying again would not help
        (finding,) = cells[where].findings
        assert finding.class_ == "seatrial"
        assert finding.message == f"internal error in Seatrial: ZeroDivisionError: a bug in {where}"
        assert "breaking_kind.py" in finding.evidence
        assert "Traceback" in finding.evidence
    assert breaking.left() == []


def test_a_cell_that_ran_and_of_which_its_kind_found_nothing_has_not_passed(breaking: World) -> None:
    breaking.seatrial("run", "suite.yaml", "--select", "where=findings", check=1)
    (cell,) = breaking.results().cells
    (finding,) = cell.findings
    assert (cell.verdict, finding.class_) == (Verdict.INVALID, "seatrial")
    assert finding.message == "not checked: kind 'breaking' returned no findings"
    assert cell.attempts[0].exit.outcome == "exited"


def test_a_cell_that_is_cancelled_before_anything_could_be_found_is_skipped(breaking: World) -> None:
    breaking.suite(
        "name: b\ntrials: {t: {kind: breaking, matrix: {where: [findings]}, command: 'touch up; sleep 1000'}}\n"
    )
    process = breaking.start("run", "suite.yaml")
    until(lambda: list(breaking.state.glob("jobs/*/*/work/up")) and breaking.started())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAIT_S)
    (cell,) = breaking.results().cells
    assert (process.returncode, cell.verdict, cell.findings) == (130, Verdict.SKIPPED, [])


def test_a_bug_is_remembered_when_the_run_is_taken_up(breaking: World) -> None:
    log = breaking.folder / "points"
    options = ("--select", "where=judge")
    breaking.seatrial("run", "suite.yaml", *options, check=1, SEATRIAL_FAILPOINT_LOG=str(log))
    names = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    point = names.index("written broken") + 1
    assert breaking.seatrial("run", "suite.yaml", *options, SEATRIAL_FAILPOINT=str(point)).returncode == -9
    breaking.seatrial("attach", "last", check=1)
    (cell,) = breaking.results().cells
    assert "a bug in judge" in cell.why
    assert [entry["event"] for entry in breaking.journal()].count("planned") == 1
    assert breaking.left() == []


def test_a_run_with_a_journal_of_another_form_is_refused_in_plain_words(world: World) -> None:
    world.suite("name: old\ntrials: {t: {kind: runtime, run: ['true']}}\n")
    log = world.folder / "points"
    world.seatrial("run", "suite.yaml", check=0, SEATRIAL_FAILPOINT_LOG=str(log))
    names = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    world.seatrial("run", "suite.yaml", SEATRIAL_FAILPOINT=str(names.index("written planned") + 1))
    first = {"n": 0, "wall_s": 1.0, "at_s": 1.0, "event": "run", "run": "old", "cells": 1, "seatrial": "0.1.0"}
    body = json.dumps(first).encode()
    world.run().journal.write_bytes(body[:-1] + b',"crc":"%08x"}\n' % zlib.crc32(body))
    done = world.seatrial("attach", "last", check=3)
    assert (
        "run was started by Seatrial 0.1.0 (journal version 0, expected 3); finish it with that version" in done.stderr
    )
    assert "seatrial reap" in done.stderr


def test_a_job_that_was_reaped_is_never_run_again_as_the_same_attempt(world: World, tmp_path: Path) -> None:
    ran = world.folder / "ran"
    world.suite(f"name: n\ntrials: {{t: {{kind: runtime, facts: false, run: ['echo x >> {ran}']}}}}")
    log = tmp_path / "points"
    world.seatrial("run", "suite.yaml", check=0, SEATRIAL_FAILPOINT_LOG=str(log))
    names = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    ran.unlink()
    world.seatrial("run", "suite.yaml", SEATRIAL_FAILPOINT=str(names.index("submit done") + 1))
    until(ran.exists)
    world.seatrial("reap", check=0)
    world.seatrial("attach", "last", check=0)
    (cell,) = world.results().cells
    assert [str(one.verdict) for one in cell.attempts] == ["infra", "passed"]
    assert "deleted by `seatrial reap`" in cell.attempts[0].why
    assert cell.flaky
    assert ran.read_text() == "x\nx\n"
    assert world.left() == []
