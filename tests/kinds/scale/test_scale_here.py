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
from seatrial.job import IN_SHORT, Finding, Peer, Verdict
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


def suite(world: World, **fields: Any) -> None:
    trial = {name: value for name, value in {**TRIAL, **fields}.items() if value is not None}
    world.suite(json.dumps({"name": "here", "trials": {"t": trial}}))


def findings(world: World) -> dict[str, Finding]:
    return {one.check: one for one in world.results().cells[0].findings}


def lines(world: World, name: str) -> list[dict[str, Any]]:
    (file,) = world.run().path.glob(f"cells/*/1/driver/files/{name}")
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_processes_go_through_the_stages_of_workloads_and_are_judged(world: World) -> None:
    mix = {"single": {"kind": "job", "gpus": 1, "weight": 4}, "gang": {"kind": "job", "pods": 3, "gpus": 1}}
    suite(world, workload=None, workloads=mix, fill={"count": 3}, bounds={"gang.finished.p99": "10m"})
    ran = world.seatrial("run", "suite.yaml", check=0)
    assert f"metrics t {findings(world)[IN_SHORT].message}" in " ".join(ran.stdout.split())
    made = lines(world, "submitted.jsonl")
    assert sorted(one["number"] for one in made) == list(range(23))
    gangs = sum(one["of"] == "gang" and one.get("phase", "measured") == "measured" for one in made)
    assert f"{gangs} of {gangs} workloads" in findings(world)["bound gang.finished.p99"].message
    pods = {one["pod"] for one in lines(world, "stamps.jsonl") if one["stage"] == "finished"}
    assert len(pods) == sum(3 if one["of"] == "gang" else 1 for one in made)
    assert findings(world)["clean-up"].verdict is Verdict.PASSED
    charts = [one.title for one in world.results().cells[0].charts]
    assert "From when it was to be sent to each stage" in charts
    assert world.left() == []


def test_what_finds_no_place_is_unschedulable_and_unfinished(world: World) -> None:
    endless = {"kind": "pod", "gpus": 1, "command": ["sleep", "infinity"]}
    suite(world, workload=endless, count=6, until="started", settle="1s", bounds={"unschedulable.p50": "10m"})
    world.seatrial("run", "suite.yaml", check=1)
    found = findings(world)
    assert found["bound unfinished"].verdict is Verdict.FAILED
    assert "2 of 6" in found["bound unfinished"].message
    stamps = lines(world, "stamps.jsonl")
    assert {one["workload"] for one in stamps if one["stage"] == "unschedulable"} == {4, 5}
    assert world.left() == []


def test_the_limit_is_searched_between_a_rate_that_holds_and_one_that_does_not(world: World) -> None:
    """What holds or breaks is how many find a place, which does not depend on how fast this machine is."""
    suite(
        world, count=8, find="limit", most="40/s", arrivals={"rate": "20/s"}, until="scheduled", settle="1s",
        local={"places": 8}, workload={"kind": "pod", "command": ["sleep", "infinity"]},
    )  # fmt: skip
    world.seatrial("run", "suite.yaml", check=0)
    found = findings(world)["limit"]
    assert found.message == "40/s keeps the bounds, and was the most to try"
    assert [one["rate"] for one in found.data["stages"]] == [20.0, 40.0]
    assert world.results().cells[0].metrics["limit"]["value"] == 40.0
    assert sorted(one["number"] for one in lines(world, "submitted.jsonl")) == list(range(16))
    suite(
        world,
        count=8,
        find="limit",
        arrivals={"rate": "32/s"},
        until="scheduled",
        settle="100ms",
        local={"places": 4},
        workload={"kind": "pod", "command": ["sleep", "infinity"]},
    )
    world.seatrial("run", "suite.yaml", check=1)
    assert "no rate from 2/s to 32/s keeps the bounds: unfinished is 4" in findings(world)["limit"].message
    assert world.left() == []


async def test_a_rate_at_which_the_lag_was_not_measured_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "LAG_EVERY_S", 3600.0)
    monkeypatch.setattr(import_module("seatrial.kinds.scale.driver"), "LAG_WITHIN_S", 0.0)
    pod = WorkloadClass("workload", {}, command=("true",))
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
    assert (found["low"], found["doubt"]) == (0.0, "how late its watch was could not be measured")
    assert [one["broken"] for one in found["tries"]] == [[]]


@pytest.mark.parametrize(
    ("workload", "check", "message"),
    [
        ({"kind": "pod", "command": ["no-such-program-here"]}, "bound failed", "20 of 20"),
        ({"kind": "pod", "command": ["false"]}, "bound failed", "20 of 20"),
        ({"template": "t.yaml"}, "driver", "take `kind: pod` or `kind: job`"),
    ],
)
def test_processes_that_fail_and_workloads_that_are_none_are_told(
    world: World, workload: dict[str, Any], check: str, message: str
) -> None:
    (world.folder / "t.yaml").write_text("apiVersion: v1\nkind: Pod\n")
    suite(world, workload=workload)
    world.seatrial("run", "suite.yaml", check=1)
    assert message in findings(world)[check].message
    assert world.left() == []


def test_a_driver_that_is_killed_ends_its_processes_begins_anew_and_says_so(world: World) -> None:
    go = world.folder / "go"  # no end before the kill
    waits = ["sh", "-c", f"until test -e {go}; do sleep 0.05; done"]
    suite(world, count=40, arrivals={"rate": 20}, workload={"kind": "pod", "command": waits})
    process = world.start("run", "suite.yaml")
    wait_for(lambda: _so_far(world) > 5)
    os.kill(driver_process(world), signal.SIGKILL)
    go.touch()
    process.communicate(timeout=600)
    assert [one["number"] for one in lines(world, "submitted.jsonl")] == list(range(40)), "once each"
    found = findings(world)
    assert found["measurement"].verdict is Verdict.INVALID
    assert found["bound unfinished"].verdict is Verdict.PASSED
    assert world.left() == []


def _so_far(world: World) -> int:
    found = list(world.state.glob("jobs/*/*/files/submitted.jsonl"))
    return Path(found[0]).read_text().count("\n") if found else 0
