"""`--target` from the plan to the report: everything runs there, attach finds it again, cells are told apart."""

import json
import re

import pytest
from far_world import FarWorld, far_world

from seatrial.record import RunFolder
from world import World

SUITE = """
name: moved
targets: {{other: {{kind: far, place: {place}}}}}
machines: {{small: {{cpu: 1}}, big: {{target: other, cpu: 1, select: {{pool: a}}}}}}
trials:
  t:
    kind: runtime
    facts: false
    matrix: {{machine: all}}
    run: ["echo $SEATRIAL_FILES", "test ${{machine}} = small"]
    env: {{TOKEN: {{secret: TOKEN}}}}
"""


@pytest.fixture
def far(world: World) -> FarWorld:
    made = far_world(world)
    made.suite(SUITE.format(place=made.place))
    made.env["TOKEN"] = "hunter2-Zx9"
    return made


def hashes(far: FarWorld, *options: str) -> dict[str, tuple[str, str]]:
    told = json.loads(far.seatrial("plan", "suite.yaml", "--json", *options, check=0).stdout)
    return {cell["axes"]["machine"]: (cell["hash"], cell["target"]) for cell in told["cells"]}


def test_a_cell_has_the_hash_of_where_it_runs_and_no_other(far: FarWorld) -> None:
    as_written, moved = hashes(far), hashes(far, "--target", "other")
    assert moved["big"] == as_written["big"]
    assert moved["small"][0] != as_written["small"][0]
    assert {target for _, target in moved.values()} == {"other"}
    wide = hashes(far, "--target", f"{far.target},parallel=9")
    assert wide == hashes(far, "--target", far.target)
    assert wide["small"][0] not in (moved["small"][0], as_written["small"][0])
    here = hashes(far, "--target", "here")
    assert here["small"] == as_written["small"]


def test_the_line_that_runs_a_failure_again_runs_it_there(far: FarWorld) -> None:
    done = far.seatrial("run", "suite.yaml", "--target", far.target, check=1)
    found = re.search(r"seatrial (run suite.yaml --target \S+ --select /\S+)", done.stdout)
    assert found is not None, done.stdout
    again = far.seatrial(*found[1].split(), check=1)
    assert "1 cell " in again.stdout
    assert far.far_jobs() == []


def test_an_unknown_target_is_an_error_with_the_nearest_name(far: FarWorld) -> None:
    for command in ("plan", "run"):
        done = far.seatrial(command, "suite.yaml", "--target", "othr", check=2)
        assert "did you mean 'other'?" in done.stderr
    assert not (far.folder / "runs").exists()


def test_a_plan_touches_no_target(far: FarWorld) -> None:
    far.say("closed", "nobody gets in")
    hashes(far, "--target", far.target)
    assert far.asked() == []


def test_no_secret_is_written_down_with_the_options_of_a_target(far: FarWorld) -> None:
    entry = f"{{kind: far, place: {far.place}, env: {{URL: 'https://me:hunter2-Zx9@example.com'}}}}"
    (far.folder / "there.yaml").write_text(entry)
    done = far.seatrial("run", "suite.yaml", "--target", "there.yaml", check=2)
    assert "targets.there.env.URL contains the value of secret TOKEN" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout
    text = (far.folder / "suite.yaml").read_text()
    far.suite(text.replace("{kind: far,", "{kind: far, env: {A: hunter2-Zx9},"), "leaks.yaml")
    done = far.seatrial("run", "leaks.yaml", check=2)
    assert "targets.other.env.A contains the value of secret TOKEN" in done.stderr
    assert not (far.folder / "runs").exists()


def test_words_of_a_target_with_a_secret_in_them_are_masked_wherever_they_are_kept(far: FarWorld) -> None:
    far.say("refuse", "env TOKEN=hunter2-Zx9 is not allowed")
    done = far.seatrial("run", "suite.yaml", "--target", far.target, check=2)
    assert "env TOKEN=••• is not allowed" in done.stderr
    far.unsay("refuse")
    far.say("broken", "hunter2-Zx9: no such host")
    done = far.seatrial("attach", "last", check=3)
    assert "hunter2" not in done.stderr + done.stdout
    for path in RunFolder(far.run().path).path.rglob("*"):
        assert not path.is_file() or b"hunter2" not in path.read_bytes()
