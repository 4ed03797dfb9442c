"""Metrics of a scale trial through time: bounds from earlier runs, and a run that is slower than they are."""

from seatrial.job import Verdict
from world import World

SUITE = """
name: watched
trials:
  t:
    kind: scale
    target: here
    workload: {kind: job, command: [sh, work.sh]}
    local: {places: 4}
    count: 4
    arrivals: {burst: 4}
    until: finished
    settle: 2m
    bounds: {finished.p99: 10m}
    baseline: bounds.yaml
    confirm: 0
"""


def work(world: World, seconds: float) -> None:
    """What is under test changes; the trial, and so its conditions, stay as they are."""
    (world.folder / "work.sh").write_text(f"exec sleep {seconds}\n")


def test_runs_give_bounds_and_a_slower_run_is_slower(world: World) -> None:
    world.suite(SUITE.replace("work.sh", str(world.folder / "work.sh")))
    work(world, 0.25)
    for _ in range(5):
        world.seatrial("run", "suite.yaml", check=0)
    chosen = ("--metric", "finished.p50", "--reason", "first bounds", "--force")
    world.seatrial("baseline", "update", "suite.yaml", *chosen, check=0)
    bounds = (world.folder / "bounds.yaml").read_text()
    shown = world.seatrial("history", "t", "--metric", "finished.p50", check=0).stdout
    assert "finished.p50" in shown
    work(world, 5)
    world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    assert cell.verdict is Verdict.SLOWER, bounds
    assert "finished.p50" in cell.why
    assert "is above" in cell.why
