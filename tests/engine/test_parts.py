"""An attempt of two parts: a real HTTP server as one job, and a driver as another that asks it a thousand things. What
becomes of it when Seatrial, the driver or the server is killed: nothing is asked twice, nothing lost, nothing left."""

import contextlib
import hashlib
import json
import os
import random
import signal
from pathlib import Path

import pytest
from asking import (
    AT_ONCE,
    COUNT,
    DRIVER,
    SERVER,
    WAIT_S,
    asked,
    asked_so_far,
    assert_asked_at_most_once,
    finding,
    pid_of,
    until,
)
from far_world import PLUGINS

from seatrial.job import Stage, Verdict
from world import EVERY, World


@pytest.fixture
def asking(world: World) -> World:
    world.env["PYTHONPATH"] = str(PLUGINS)
    return world


def suite(world: World, fields: str = f"count: {COUNT}") -> None:
    world.suite(f"name: asking\ntrials: {{a: {{kind: asking, retries: 0, {fields}}}}}\n")


def test_a_server_is_asked_when_it_is_ready_and_ended_when_its_driver_is_done(asking: World) -> None:
    suite(asking)
    asking.seatrial("run", "suite.yaml", check=0)
    assert set(asked(asking).values()) == {1}
    assert len(asked(asking)) == COUNT
    assert finding(asking, "driver", "asked").data == {"finished": COUNT, "unknown": 0, "undone": 0}
    events = [(entry["event"], entry.get("part")) for entry in asking.journal()]
    assert events.index(("ready", "server")) < events.index(("submitted", "driver"))
    assert events.index(("ended", "driver")) < events.index(("stopping", "server"))
    (attempt,) = asking.results().cells[0].attempts
    assert {name: str(part.exit.outcome) for name, part in attempt.parts.items()} == {
        "server": "released",
        "driver": "exited",
    }
    assert Stage.READY in [one.stage for one in attempt.parts["server"].stages]
    assert asking.left() == []


def test_ten_servers_run_side_by_side_each_on_a_port_of_its_own(asking: World) -> None:
    asking.suite("name: ten\ntrials: {a: {kind: asking, count: 20, matrix: {n: [0,1,2,3,4,5,6,7,8,9]}}}\n")
    asking.seatrial("run", "suite.yaml", "--parallel", "10", check=0)
    lists = [path.read_text().split() for path in asking.run().path.glob("cells/*/1/server/files/asked")]
    assert [len(set(one)) for one in lists] == [20] * 10
    assert [len(one) for one in lists] == [20] * 10


def test_a_server_that_ends_first_ends_its_driver_and_is_what_the_verdict_names(asking: World) -> None:
    suite(asking, "count: 100000, pause: 0.02")
    process = asking.start("run", "suite.yaml")
    until(lambda: asked_so_far(asking) > 20)
    server = pid_of(asking, SERVER)
    assert server is not None
    os.kill(server, signal.SIGKILL)
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    (cell,) = asking.results().cells
    assert cell.why.startswith("server: ")
    data = finding(asking, "driver", "asked").data
    assert data["undone"] > 0
    assert data["finished"] + data["unknown"] + data["undone"] == 100000
    assert asking.left() == []


def test_a_server_that_exits_by_itself_stops_its_driver_which_says_so(asking: World) -> None:
    leave = asking.folder / "leave"
    suite(asking, f"count: 100000, pause: 0.02, env: {{LEAVE_WHEN: {leave}}}")
    process = asking.start("run", "suite.yaml")
    until(lambda: asked_so_far(asking) > 20)
    leave.touch()
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    (attempt,) = asking.results().cells[0].attempts
    ends = {name: (str(part.exit.outcome), part.exit.code) for name, part in attempt.parts.items()}
    assert ends["server"] == ("exited", 3)
    assert ends["driver"][0] == "stopped"
    stopped = finding(asking, "driver", "ended")
    assert (stopped.verdict, stopped.class_) == (Verdict.FAILED, "stopped")
    assert stopped.message.startswith("the driver was stopped early")
    assert "the server ended first" in stopped.message + stopped.evidence
    assert asking.left() == []


def test_a_driver_gets_secrets_and_they_are_masked_in_all_that_it_writes(asking: World) -> None:
    value = "sesame-opens-0815"
    suite(asking, "count: 3, env: {TOKEN: {secret: TOKEN}}, reveal: TOKEN")
    asking.seatrial("run", "suite.yaml", check=0, TOKEN=value)
    (driver,) = asking.run().path.glob("cells/*/1/driver")
    records = [json.loads(line) for line in (driver / "records.jsonl").read_text().splitlines()]
    (revealed,) = (record["data"] for record in records if record.get("data", {}).get("note") == "revealed")
    assert revealed == {"note": "revealed", "value": "•••", "digest": hashlib.sha256(value.encode()).hexdigest()}
    assert "the value is •••" in (driver / "log.txt").read_text()
    (kept,) = driver.glob("files/named-•••-*")  # two names that are masked stay two
    assert kept.read_text() == "in a file: •••\n"
    for folder in (asking.folder, asking.state):
        holding = [path for path in folder.rglob("*") if path.is_file() and value.encode() in path.read_bytes()]
        assert holding == [], holding
        assert list(folder.rglob(f"*{value}*")) == []


def test_a_server_that_is_never_ready_is_a_timeout_and_its_driver_is_never_started(asking: World) -> None:
    suite(asking, "count: 3, within: 0.5, server: sleep 1000")
    asking.seatrial("run", "suite.yaml", check=124)
    (cell,) = asking.results().cells
    assert cell.why.startswith("server: the server was not ready in time: no successful GET /health on port http")
    assert ("submitted", "driver") not in [(entry["event"], entry.get("part")) for entry in asking.journal()]
    assert asking.left() == []


def test_a_driver_that_is_killed_goes_on_where_its_records_end(asking: World) -> None:
    hold_from = asking.folder / "hold_from"  # it cannot come to its end before it is killed
    suite(asking, f"count: {COUNT}, env: {{HOLD_FROM: {hold_from}}}")

    def hold(number: int) -> None:
        hold_from.with_suffix(".new").write_text(str(number))
        hold_from.with_suffix(".new").rename(hold_from)

    hold(0)
    process = asking.start("run", "suite.yaml")
    killed: set[int] = set()
    for part in (1, 2, 3):
        hold(part * COUNT // 5 + part * AT_ONCE)
        until(lambda part=part: asked_so_far(asking) >= part * COUNT // 5)  # type: ignore[misc]
        driver = until(lambda: pid if (pid := pid_of(asking, DRIVER)) not in killed else None)
        killed.add(driver)
        os.kill(driver, signal.SIGKILL)
    hold(COUNT)
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert_asked_at_most_once(asking, kills=3)


def failpoints(world: World) -> list[str]:
    log = world.folder / "points"
    world.seatrial("run", "suite.yaml", check=0, SEATRIAL_FAILPOINT_LOG=str(log))
    return [line.split(" ", 1)[1] for line in log.read_text().splitlines()]


def test_seatrial_killed_at_each_point_and_attached_ends_as_an_undisturbed_run(asking: World) -> None:
    suite(asking)
    names = failpoints(asking)
    some = range(1, len(names) + 1) if EVERY else [names.index(name) + 1 for name in ("written ready", "fetched")]
    for point in some:
        killed = asking.seatrial("run", "suite.yaml", SEATRIAL_FAILPOINT=str(point))
        assert killed.returncode == -9, f"{point} {names[point - 1]}: {killed.stdout}{killed.stderr}"
        asking.seatrial("attach", "last", check=0)
        assert_asked_at_most_once(asking, kills=0)


@pytest.mark.parametrize("seed", range(300 if EVERY else 3))  # a third for each of them
def test_a_kill_of_any_of_them_at_a_random_instant(asking: World, seed: int) -> None:
    chance = random.Random(seed)
    suite(asking, f"count: {COUNT}, pause: 0.005")
    process = asking.start("run", "suite.yaml")
    victim = ("seatrial", "driver", "server")[seed % 3]
    instant = chance.randrange(1, COUNT)
    until(lambda: asked_so_far(asking) >= instant or process.poll() is not None)
    if victim == "seatrial":
        process.kill()
        process.communicate()
        asking.seatrial("attach", "last", check=0)
        return assert_asked_at_most_once(asking, kills=0)
    pid = pid_of(asking, DRIVER if victim == "driver" else SERVER)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=WAIT_S)
    if victim == "driver":
        return assert_asked_at_most_once(asking, kills=1)
    assert asking.left() == []
    assert max(asked(asking).values(), default=1) == 1
    data = finding(asking, "driver", "asked").data
    assert data["finished"] + data["unknown"] + data["undone"] == COUNT
    return None


def test_what_was_to_be_submitted_is_in_the_run_folder_before_anything_is(asking: World) -> None:
    suite(asking)
    log = asking.folder / "points"
    asking.seatrial("run", "suite.yaml", SEATRIAL_FAILPOINT_LOG=str(log), SEATRIAL_FAILPOINT="1000")
    names = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    point = names.index("before planned") + 1
    asking.seatrial("run", "suite.yaml", SEATRIAL_FAILPOINT=str(point))
    files = sorted(Path(path).parent.name for path in asking.run().path.glob("cells/*/1/*/job.json"))
    assert files == ["driver", "server"]
    assert asking.jobs() == []
    asking.seatrial("attach", "last", check=0)
