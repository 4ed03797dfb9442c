"""`seatrial runs`: what each run came to, or how far it is; and tables, which are the same in plan and run."""

import json

from seatrial.record import Ownership
from world import World

SUITE = "name: nightly\ntrials:\n  ok: {kind: runtime, run: ['true']}\n  bad: {kind: runtime, run: ['false']}\n"


def test_without_any_it_says_how_to_make_one(world: World) -> None:
    assert "no runs in runs yet" in world.seatrial("runs", check=0).stdout


def test_runs_are_listed_with_what_they_came_to_or_how_far_they_are(world: World) -> None:
    world.suite(SUITE)
    world.seatrial("run", "suite.yaml", check=1)
    first = world.run().run
    world.seatrial("run", "suite.yaml", "--select", "ok", check=0)
    second = world.run().run
    (world.folder / "runs" / first / "results.json").unlink()
    lines = world.seatrial("runs", check=0).stdout.splitlines()
    assert [line.split()[:3] for line in lines] == [["✓", "passed", second], ["◌", "unfinished", first]]
    assert lines[0].endswith("1 cell  ✓ 1")
    assert lines[1].endswith(f"2/2 done, resume with `seatrial attach {first}`")
    ownership = Ownership.take(world.folder / "runs" / first)
    told = json.loads(world.seatrial("runs", "--json", check=0).stdout)
    assert [(one["run"], one["state"]) for one in told["runs"]] == [(second, "finished"), (first, "running")]
    ownership.close()
    assert "… and 1 older; use --last 2 to list all" in world.seatrial("runs", "--last", "1", check=0).stdout


def test_a_run_that_cannot_be_read_hides_no_other(world: World) -> None:
    world.suite(SUITE)
    world.seatrial("run", "suite.yaml", "--select", "ok", check=0)
    (world.run().path / "results.json").write_text("{")
    broken = world.folder / "runs" / "broken"
    broken.mkdir()
    (broken / "plan.json").write_text("nonsense")
    lines = world.seatrial("runs", check=0).stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["damaged", "damaged"]


ORDER = """
name: order
machines: {small: {memory: 1Gi}, large: {memory: 2Gi}, huge: {memory: 3Gi}}
runtimes: {big: {needs: {memory: ">=2Gi"}}, any: {}}
trials:
  t: {kind: runtime, matrix: {machine: all, runtime: all}, run: ["true"]}
"""


def test_rows_and_columns_stand_alike_in_plan_and_run(world: World) -> None:
    world.suite(ORDER)
    planned = world.seatrial("plan", "suite.yaml", check=0).stdout.splitlines()
    world.seatrial("run", "suite.yaml", check=0)
    world.suite("trials: {}", "broken.yaml")
    world.seatrial("run", "broken.yaml", check=2)
    reported = world.seatrial("report", "last", check=0)
    assert reported.stderr.startswith(f"seatrial: the last run is {world.run().run}, started ")
    shown = reported.stdout.splitlines()
    heads = [next(line.split()[-3:] for line in lines if "small" in line) for lines in (planned, shown)]
    assert heads == [["small", "large", "huge"]] * 2
    rows = [[line.split()[0] for line in lines if line.startswith(("big ", "any "))] for lines in (planned, shown)]
    assert rows == [["big", "any"]] * 2
