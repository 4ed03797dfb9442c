"""A trial of many cases, and what its driver's records and its server's own log say of them after kills."""

import json
import os
import signal
from collections import Counter
from typing import Any

from engine.asking import pid_of
from seatrial.job import Verdict
from world import World

DRIVER = "-m seatrial.kinds.driver"
AT_A_TIME = 4  # cases that the driver asks at a time
VICTIMS = ("seatrial", "driver", "server")


def write_cases(world: World, count: int, name: str = "many.yaml", tokens: int = 16) -> str:
    """Different prompts, so that the answers of each are its own."""
    cases = [
        {
            "name": f"case {number}",
            "skip_check": True,
            "request": {
                "params": {"stopping": {"maxNewTokens": tokens}},
                "requests": [{"text": f"Number {number} is"}],
            },
            "response": {"responses": [{"inputTokenCount": 0}]},
        }
        for number in range(count)
    ]
    (world.folder / name).write_text(json.dumps(cases))
    return name


def notes(world: World) -> list[dict[str, Any]]:
    """Of the driver of the only cell, in order."""
    (found,) = all_notes(world)
    return found


def all_notes(world: World) -> list[list[dict[str, Any]]]:
    """Of the driver of each cell."""
    paths = world.run().path.glob("cells/*/1/driver/records.jsonl")
    records = [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]
    return [[record["data"] for record in one if record["event"] == "note"] for one in records]


def answered_so_far(world: World, cell: str = "") -> list[int]:
    """By each driver that runs, or by those of one cell."""
    found = world.state.glob("jobs/*/*-driver/records.jsonl")
    return [path.read_bytes().count(b'"finished"') for path in found if cell in path.parent.name]


def kill(world: World, text: str) -> bool:
    """The process of this world with that in its command line; whether there was one."""
    pid = pid_of(world, text)
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:  # it ended just then
        return False
    return True


def assert_no_answer_was_asked_for_again(world: World) -> None:
    """By the records: nothing is begun after it was finished. By the server: it answered no more than was begun."""
    if not list(world.run().path.glob("cells/*/1/driver/records.jsonl")):
        return  # its server ended before there was a driver
    finished: set[str] = set()
    begun: Counter[str] = Counter()
    for note in notes(world):
        if note["note"] == "begun":
            assert note["thing"] not in finished
            begun[note["thing"]] += 1
        elif note["note"] == "finished":
            assert note["thing"] not in finished
            finished.add(note["thing"])
    for log in world.run().path.glob("cells/*/1/server/log.txt"):
        assert log.read_text(errors="replace").count("stop processing") <= sum(begun.values())


def assert_all_answered(world: World, count: int, kills: int) -> None:
    """Each case once, whatever was killed; what a killed driver had begun is asked again."""
    assert world.left() == []
    assert_no_answer_was_asked_for_again(world)
    things = Counter(note["thing"] for note in notes(world) if note["note"] == "finished")
    begun = Counter(note["thing"] for note in notes(world) if note["note"] == "begun")
    assert len(things) == count + 1  # and the one that shows that it is ready
    assert sum(begun.values()) <= count + 1 + AT_A_TIME * kills
    (cell,) = world.results().cells
    assert {str(finding.verdict) for finding in cell.findings} == {"passed"}


def assert_all_accounted_for(world: World, count: int) -> None:
    """Of a server that was killed: every case has its finding, and those that it answered pass."""
    assert world.left() == []
    assert_no_answer_was_asked_for_again(world)
    (cell,) = world.results().cells
    cases = [finding for finding in cell.findings if finding.step.startswith("case ")]
    assert len(cases) == count
    records = list(world.run().path.glob("cells/*/1/driver/records.jsonl"))
    answered = {note["thing"] for note in notes(world) if "answer" in note} if records else set()
    good = [note for note in notes(world) if "answer" in note and "failure" not in note["answer"]] if records else []
    assert len([finding for finding in cases if finding.verdict is Verdict.PASSED]) == len(good)
    assert len(good) == count or not cell.verdict.good
    assert len(answered) <= count
