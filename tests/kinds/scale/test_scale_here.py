"""A scale trial of processes on this machine: the same stages, verdicts and records as on a cluster."""

import json
import os
import signal
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kinds.scale.scale_world import driver_process, wait_for
from seatrial.job import IN_SHORT, CellResult, Finding, Peer, Verdict
from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.driver import Driver, Given
from seatrial.kinds.scale.driver import drive, processes
from seatrial.kinds.scale.model import parse_scale_bound
from seatrial.kinds.scale.work import Find, ScaleWork, WorkloadClass
from world import World

TRIAL = {
    "kind": "scale",
    "target": "here",
    "retries": 0,
    "workload": {"kind": "job", "gpus": 1},
    "local": {"places": 4},
    "count": 20,
    "arrivals": {"rate": 100},
    "until": "finished",
    "settle": "4m",
    "bounds": {"scheduled.p99": "10m"},
}


SHORT = "too short to see whether the cluster keeps up; raise `count`"
ENDLESS = {"kind": "pod", "gpus": 1, "command": ["sleep", "infinity"]}


def run(world: World, check: int | None, **trials: dict[str, Any]) -> str:
    """Trials side by side in one run; what it printed."""
    every = {
        name: {field: value for field, value in {**TRIAL, **fields}.items() if value is not None}
        for name, fields in trials.items()
    }
    world.suite(json.dumps({"name": "here", "trials": every}))
    return world.seatrial("run", "suite.yaml", check=check).stdout if check is not None else ""


def cell(world: World, trial: str) -> CellResult:
    (found,) = [one for one in world.results().cells if one.id == trial]
    return found


def findings(world: World, trial: str) -> dict[str, Finding]:
    return {one.check: one for one in cell(world, trial).findings}


def lines(world: World, trial: str, name: str) -> list[dict[str, Any]]:
    (file,) = world.run().path.glob(f"cells/{cell(world, trial).hash}/1/driver/files/{name}")
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_processes_go_through_the_stages_of_workloads_and_are_judged_and_a_limit_is_searched(world: World) -> None:
    mix = {"single": {"kind": "job", "gpus": 1, "weight": 4}, "gang": {"kind": "job", "pods": 3, "gpus": 1}}
    ran = run(
        world, 1,
        t={"workload": None, "workloads": mix, "fill": {"count": 3},
           "bounds": {"gang.finished.p99": "10m", "created..finished.p99": "10m", "gang.scheduled..finished.p50": 600}},
        holds={"count": 130, "find": "limit", "most": "40/s", "arrivals": {"rate": "40/s"}, "until": "scheduled",
               "settle": "1s", "local": {"places": 400}, "workload": ENDLESS},
    )  # fmt: skip
    assert cell(world, "t").verdict is Verdict.PASSED
    found = findings(world, "t")
    assert f"metrics t {found[IN_SHORT].message}" in " ".join(ran.split())
    made = lines(world, "t", "submitted.jsonl")
    assert sorted(one["number"] for one in made) == list(range(23))
    gangs = sum(one["of"] == "gang" and one.get("phase", "measured") == "measured" for one in made)
    assert f"{gangs} of {gangs} workloads" in found["bound gang.finished.p99"].message
    pods = {one["pod"] for one in lines(world, "t", "stamps.jsonl") if one["stage"] == "finished"}
    assert len(pods) == sum(3 if one["of"] == "gang" else 1 for one in made)
    assert found["clean-up"].verdict is Verdict.PASSED
    assert "Time from scheduled send to each stage" in [one.title for one in cell(world, "t").charts]

    limit = findings(world, "holds")["limit"]
    assert limit.verdict is Verdict.INVALID
    assert limit.message.startswith("no limit found: ")
    assert limit.evidence.startswith("        40/s  ")
    assert "limit" not in cell(world, "holds").metrics, "there is no upper end"
    assert world.left() == []


def test_processes_that_find_no_place_or_fail_and_workloads_that_are_none_are_told(world: World) -> None:
    (world.folder / "t.yaml").write_text("apiVersion: v1\nkind: Pod\n")
    run(
        world, 1,
        unschedulable={"workload": ENDLESS, "count": 6, "until": "started", "settle": "1s",
                       "bounds": {"unschedulable.p50": "10m"}},
        none_holds={"workload": ENDLESS, "count": 130, "find": "limit", "arrivals": {"rate": "320/s"},
                    "until": "scheduled", "settle": "100ms"},
        no_program={"workload": {"kind": "pod", "command": ["no-such-program-here"]}},
        fails={"workload": {"kind": "pod", "command": ["false"]}},
        template={"workload": {"template": "t.yaml"}},
    )  # fmt: skip
    found = findings(world, "unschedulable")
    assert found["bound unfinished"].verdict is Verdict.FAILED
    assert "2 of 6" in found["bound unfinished"].message
    stamps = lines(world, "unschedulable", "stamps.jsonl")
    assert {one["workload"] for one in stamps if one["stage"] == "unschedulable"} == {4, 5}
    limit = findings(world, "none_holds")["limit"].message
    assert "no rate from 20/s to 320/s keeps the bounds: unfinished is 126" in limit
    assert "20 of 20" in findings(world, "no_program")["bound failed"].message
    assert "20 of 20" in findings(world, "fails")["bound failed"].message
    assert "use `kind: pod` or `kind: job`" in findings(world, "template")["driver"].message
    assert {one.verdict for one in world.results().cells} == {Verdict.FAILED}, "each of them alone"
    assert world.left() == []


async def test_a_rate_at_which_the_lag_was_not_measured_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "LAG_EVERY_S", 3600.0)
    monkeypatch.setattr(import_module("seatrial.kinds.scale.driver"), "LAG_WITHIN_S", 0.0)
    pod = WorkloadClass("workload", (), command=("true",))
    bounds = (parse_scale_bound("finished.p99", "10m"),)
    work = ScaleWork("r", "69b56f04", 1, f"scale-{os.getpid()}", (pod,), 4, Arrivals("rate", rate=100.0),
                     until="finished", find=Find(bounds), places=4)  # fmt: skip
    reading, writing = os.pipe()
    try:
        given = Given(msgspec.to_builtins(work), str(tmp_path))
        await drive(Driver(given, writing, Peer("driver", "here", "local", {}, "")))
        notes = [json.loads(line) for line in os.read(reading, 1 << 16).splitlines()]
    finally:
        os.close(reading)
        os.close(writing)
    (found,) = [one for one in notes if one["note"] == "limit"]
    assert (found["low"], found["high"]) == (0.0, 0.0)
    assert found["doubt"].startswith("at 6.25/s, finished.p99 is ")
    assert found["doubt"].endswith("too close to 10m: no watch lag was measured; " + SHORT)
    assert [one["broken"] for one in found["tries"]] == [[]] * 10, "each of five rates was tried twice"


def test_a_driver_that_is_killed_ends_its_processes_begins_anew_and_says_so(world: World) -> None:
    go = world.folder / "go"  # no end before the kill
    waits = ["sh", "-c", f"until test -e {go}; do sleep 0.05; done"]
    run(world, None, t={"count": 40, "arrivals": {"rate": 40}, "workload": {"kind": "pod", "command": waits}})
    process = world.start("run", "suite.yaml")
    wait_for(lambda: _so_far(world) > 5)
    os.kill(driver_process(world), signal.SIGKILL)
    go.touch()
    process.communicate(timeout=600)
    assert [one["number"] for one in lines(world, "t", "submitted.jsonl")] == list(range(40)), "once each"
    found = findings(world, "t")
    assert found["measurement"].verdict is Verdict.INVALID
    assert found["bound unfinished"].verdict is Verdict.PASSED
    assert world.left() == []


def _so_far(world: World) -> int:
    found = list(world.state.glob("jobs/*/*/files/submitted.jsonl"))
    return Path(found[0]).read_text().count("\n") if found else 0


def test_churn_replaces_by_share_and_by_age(world: World) -> None:
    """Each mode replaces as many as its plan says; all that are deleted had been started."""
    modes = {"share": {"share": "50%", "every": "200ms", "for": "500ms"}, "age": {"age": "1h", "for": "100ms"}}
    same = {"workload": ENDLESS, "count": 4, "until": "started"}
    run(world, 0, **{name: {**same, "churn": churn} for name, churn in modes.items()})
    for name, count in (("share", 6), ("age", 0)):
        assert len(lines(world, name, "deleted.jsonl")) == count
        assert sorted(one["number"] for one in lines(world, name, "submitted.jsonl")) == list(range(4 + count))
        assert f"{4 + count} of {4 + count} workloads" in findings(world, name)["bound scheduled.p99"].message
    assert world.left() == []
