"""Metrics against bounds in a real run: what is out of them is confirmed first, and what was kept is judged by."""

import pytest

from seatrial.baseline import read_for_trials
from seatrial.engine import RunOptions, commit_of, create, reopen
from seatrial.plan import expand
from seatrial.plugins import models
from seatrial.record.history import open_history
from seatrial.suite import load
from world import World

# CPU time, not wall time: it does not depend on what else the machine does, nor on how fast it is.
BURN = 'until [ $(cut -d" " -f14 /proc/$$/stat) -ge 60 ]; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; done'
SUITE = """
name: bounded
trials:
  t:
    kind: runtime
    facts: false
    baseline: bounds.yaml
    confirm: {confirm}
    run: [{{name: work, command: '{command}'}}]
"""
BOUNDS = """
version: 1
baselines:
  t:
    run work.cpu: {lower: 0, upper: 0.3, center: 0.1, unit: s, better: lower, runs: 30, state: usable}
"""


def bounded(world: World, command: str, confirm: int) -> None:
    world.suite(SUITE.format(command=command.replace("'", "''"), confirm=confirm))
    world.suite(BOUNDS, "bounds.yaml")


@pytest.mark.parametrize("confirm", [0, 2])
def test_it_is_slower_only_when_every_confirming_run_agrees(world: World, confirm: int) -> None:
    bounded(world, BURN, confirm)
    done = world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    assert cell.verdict == "slower"
    assert len(cell.attempts) == 1 + confirm
    assert "is above 0.3 s (30 runs" in cell.why
    assert ("(3 of 3 runs agree)" in cell.why) is (confirm == 2)
    assert ("confirming t" in done.stdout) is (confirm == 2)


def test_one_run_out_of_bounds_that_the_next_does_not_confirm_stays_visible(world: World) -> None:
    mark = world.folder / "seen"
    bounded(world, f"test -e {mark} || {{ touch {mark}; {BURN}; }}", confirm=2)
    world.seatrial("run", "suite.yaml", check=0)
    (cell,) = world.results().cells
    assert [str(attempt.verdict) for attempt in cell.attempts] == ["slower", "passed"]
    assert cell.flaky


def test_two_slow_runs_of_three_are_slower_and_all_three_are_in_the_history(world: World) -> None:
    count = world.folder / "count"
    bounded(world, f"echo >> {count}; test $(wc -l < {count}) -gt 2 || {{ {BURN}; }}", confirm=2)
    world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    assert [str(attempt.verdict) for attempt in cell.attempts] == ["slower", "slower", "passed"]
    assert (str(cell.verdict), cell.flaky) == ("slower", False)
    assert cell.why.endswith("(not stable: 2 of 3 runs slower)")
    (series,) = open_history(world.folder / "runs" / "history.db").series(metric="run work.cpu")
    assert [point.verdict for point in series.points] == ["slower", "slower", "passed"]
    assert series.points[1].value > 0.3 > series.points[2].value


def test_runs_that_contradict_each_other_are_told_as_that(world: World) -> None:
    count = world.folder / "count"
    command = f"echo >> {count}; test $(($(wc -l < {count}) % 2)) = 0 || {{ {BURN}; }}"
    bounded(world, command, confirm=2)
    world.suite(BOUNDS.replace("lower: 0,", "lower: 0.15,"), "bounds.yaml")
    world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    assert [str(attempt.verdict) for attempt in cell.attempts] == ["slower", "faster"] * 2 + ["slower"]
    assert "not stable: 3 slower and 2 faster of 5 runs" in cell.why


def test_a_trial_that_does_not_say_how_often_is_confirmed_once(world: World) -> None:
    bounded(world, BURN, confirm=0)
    path = world.folder / "suite.yaml"
    path.write_text(path.read_text().replace("    confirm: 0\n", ""))
    world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    assert (cell.verdict, len(cell.attempts)) == ("slower", 2)


def test_another_metric_out_of_bounds_confirms_nothing(world: World) -> None:
    count = world.folder / "count"
    odd = f"echo >> {count}; test $(($(wc -l < {count}) % 2)) = 0 || {{ {BURN}; }}"
    even = f"test $(($(wc -l < {count}) % 2)) = 1 || {{ {BURN}; }}"
    bounded(world, odd, confirm=1)
    path = world.folder / "suite.yaml"
    path.write_text(path.read_text().replace("'}]", f"'}}, {{name: other, command: '{even}'}}]"))
    world.suite(BOUNDS + BOUNDS.splitlines()[-1].replace("work", "other") + "\n", "bounds.yaml")
    world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    assert [str(attempt.verdict) for attempt in cell.attempts] == ["slower"] * 3
    assert "not stable: 3 of 3 runs slower, by different metrics" in cell.why


def test_a_metric_that_is_known_to_be_slow_can_be_excused(world: World) -> None:
    bounded(world, BURN, confirm=0)
    path = world.folder / "suite.yaml"
    path.write_text(path.read_text() + "    xfail: [{step: figures, why: issue 12}]\n")
    world.seatrial("run", "suite.yaml", check=0)
    assert world.verdicts() == {"t": "xfail"}


def test_a_run_is_judged_by_the_bounds_that_it_started_with(world: World) -> None:
    bounded(world, "true", confirm=0)
    suite = load(world.folder / "suite.yaml", *models(), read_for_trials)
    plan = expand(suite)
    prepared = create(suite, plan, world.folder / "runs", RunOptions())
    world.suite("version: 1\nbaselines: {}\n", "bounds.yaml")
    (kept,) = reopen(prepared.folder).plan.cells
    assert kept.bounds == plan.cells[0].bounds
    assert kept.bounds[0].upper == 0.3


def test_a_baseline_with_a_mistake_is_told_with_its_line(world: World) -> None:
    bounded(world, "true", confirm=0)
    world.suite(BOUNDS.replace("upper: 0.3", "upper: soon"), "bounds.yaml")
    assert "bounds.yaml:5:" in world.seatrial("run", "suite.yaml", check=2).stderr


def test_the_commit_is_that_of_the_checkout_unless_somebody_says_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded(world, "true", confirm=0)
    world.seatrial("run", "suite.yaml", "--commit", "abc123", check=0)
    assert world.results().commit == "abc123"
    world.seatrial("run", "suite.yaml", check=0, GITHUB_SHA="def456")
    assert world.results().commit == "def456"
    monkeypatch.delenv("GITHUB_SHA", raising=False)
    assert commit_of(world.folder / "nowhere") == ""
