"""`--set` from the plan to the report: kept in both, needed by no `attach`, repeated by the commands of a report."""

import json
import re
import shlex
from pathlib import Path

import pytest

import seatrial
from world import World

SUITE = """
name: changed
trials:
  t:
    kind: runtime
    facts: false
    matrix: {mode: [a, b]}
    run: [{name: first, command: "true"}]
    env: {TOKEN: {secret: TOKEN}}
"""
FAILS = "trials.t.run[0].command=echo 'mode is ${mode}'; exit 3"


@pytest.fixture
def changed(world: World) -> World:
    world.suite(SUITE)
    world.env["TOKEN"] = "hunter2-Zx9"
    return world


def hashes(world: World, *options: str) -> dict[str, str]:
    made = json.loads(world.seatrial("plan", "suite.yaml", "--json", *options, check=0).stdout)
    return {cell["id"]: cell["hash"] for cell in made["cells"]}


def test_a_changed_field_is_kept_in_plan_and_record_and_a_rerun_runs_the_same_cell(changed: World) -> None:
    done = changed.seatrial("run", "suite.yaml", "--set", FAILS, "--set", "trials.t.retries=0", check=1)
    first = changed.results()
    plan = changed.run().read_plan()
    assert plan.suite.overrides == tuple(first.overrides) == (FAILS, "trials.t.retries=0")
    assert "mode is a" in (changed.run().attempt(first.cells[0].hash, 1) / "log.txt").read_text()
    found = re.search(r"seatrial (run suite.yaml .* --select /\S+)", done.stdout)
    assert found is not None, done.stdout
    changed.seatrial(*shlex.split(found[1]), check=1)
    assert [cell.hash for cell in changed.results().cells] == [first.cells[0].hash]
    page = (changed.run().path / "junit.xml").read_text()
    assert "--set 'trials.t.run[0].command=" in page.replace("&#x27;", "'")
    again = changed.seatrial("run", *shlex.split(found[1])[1:-2], "--failed", first.run, check=1)
    assert "2 cells" in again.stdout


def test_the_hash_changes_as_it_does_when_the_file_is_edited(changed: World) -> None:
    as_written = hashes(changed)
    assert hashes(changed, "--set", "trials.t.timeout.run=5m") == as_written, "limits do not count"
    by_option = hashes(changed, "--set", "trials.t.run[0].command=echo")
    changed.suite(SUITE.replace('"true"', "echo"))
    assert by_option == hashes(changed) != as_written


def test_attach_needs_no_option(changed: World) -> None:
    changed.seatrial("run", "suite.yaml", "--set", FAILS, SEATRIAL_FAILPOINT="3")
    changed.suite("not a suite")
    done = changed.seatrial("attach", "last", check=1)
    assert "exited 3" in done.stdout
    assert changed.results().overrides == [FAILS]


def test_no_secret_is_written_down_with_an_argument(changed: World) -> None:
    done = changed.seatrial("run", "suite.yaml", "--set", "trials.t.env.URL=https://x:hunter2-Zx9@h", check=2)
    assert "--set trials.t.env.URL contains the value of secret TOKEN" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout
    assert not (changed.folder / "runs").exists()


def test_plan_and_run_reject_a_wrong_argument(changed: World) -> None:
    for command in ("plan", "run"):
        done = changed.seatrial(command, "suite.yaml", "--set", "trials.t.rnu=x", check=2)
        assert "--set:1:10: unknown field 'rnu'; did you mean 'run'?" in done.stderr


def test_the_api_takes_the_same_arguments(changed: World) -> None:
    suite = seatrial.load(changed.folder / "suite.yaml", overrides=["trials.t.repeat=2"])
    assert len(seatrial.plan(suite, runs=Path(changed.folder / "runs")).cells) == 4
