"""Worlds with the kind `asking`: a server, and a driver that asks it `COUNT` things; and what both say of that."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from world import EVERY, World

AT_ONCE = 4  # things that the driver asks at the same time
COUNT = 1000 if EVERY else 300
WAIT_S = 600.0
DRIVER, SERVER = "-m seatrial.kinds.driver", "http.server"


def asked(world: World) -> Counter[str]:
    """By the server's own account, which is kept with its files."""
    (path,) = world.run().path.glob("cells/*/1/server/files/asked")
    return Counter(path.read_text().split())


def finding(world: World, step: str, check: str) -> Any:
    (cell,) = world.results().cells
    return next(one for one in cell.findings if (one.step, one.check) == (step, check))


def until(holds: Callable[[], Any]) -> Any:
    for _ in range(int(WAIT_S / 0.01)):
        if found := holds():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


def asked_so_far(world: World) -> int:
    """By the driver's account, which is on this machine wherever the server is."""
    return sum(path.read_bytes().count(b'"finished"') for path in world.state.glob("jobs/*/*-driver/records.jsonl"))


def pid_of(world: World, text: str) -> int | None:
    return next((int(line.split()[0]) for line in world.processes() if text in line and "spawn" not in line), None)


def assert_asked_at_most_once(world: World, kills: int) -> None:
    """Nothing twice; what was not asked is only what a killed driver had begun, and that is reported."""
    assert world.left() == []
    counts = asked(world)
    assert max(counts.values()) == 1
    data = finding(world, "driver", "asked").data
    assert data["undone"] == 0
    assert data["finished"] + data["unknown"] == COUNT
    assert data["unknown"] <= AT_ONCE * kills
    assert data["finished"] <= len(counts) <= COUNT
