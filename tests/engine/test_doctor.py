"""`seatrial doctor` as a user calls it: what it looks at, what it says, how it ends."""

import json

import pytest
from far_world import FarWorld, far_world

from world import World


@pytest.fixture
def far(world: World) -> FarWorld:
    """A machine without a kubeconfig."""
    made = far_world(world)
    made.env.pop("KUBECONFIG", None)
    made.env.pop("KUBERNETES_SERVICE_HOST", None)
    made.env.update(HOME=str(world.folder), SEATRIAL_CACHE=str(world.folder / "cache"))
    return made


def test_without_a_suite_this_machine_is_examined_and_nothing_is_left(far: FarWorld) -> None:
    before = there(far)
    done = far.seatrial("doctor", check=0)
    assert done.stdout.startswith("here (local)\n")
    assert "ok       job folder" in done.stdout
    assert "target ready" in done.stdout
    assert there(far) == before


def there(far: FarWorld) -> list[str]:
    """Without what podman keeps in the home of an ordinary user who asks it anything."""
    return sorted({path.name for path in far.folder.iterdir()} - {".config", ".local"})


def test_what_to_do_is_told_line_by_line_and_foreign_text_moves_no_cursor(far: FarWorld) -> None:
    done = far.seatrial("doctor", "--target", far.target, check=0)
    assert "warning  the door  it creaks loudly\n" in done.stdout
    assert "            kind: Oil\n            metadata:\n              name: hinge\n" in done.stdout
    assert "target ready (1 warning)\n" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_target_that_cannot_be_reached_is_a_problem_and_no_traceback_and_hides_no_other(far: FarWorld) -> None:
    far.say("closed", "no route to host")
    far.suite(f"targets: {{far: {{kind: far, place: {far.place}}}}}\ntrials: {{t: {{kind: runtime, run: ['true']}}}}\n")
    done = far.seatrial("doctor", "suite.yaml", check=3)
    assert "far (far)\n  problem  examined  check failed: ConnectionError: no route to host" in done.stdout
    assert "here (local)" in done.stdout
    assert "1 of 2 targets cannot run jobs" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_the_form_for_programs_says_the_same(far: FarWorld) -> None:
    told = json.loads(far.seatrial("doctor", "--target", far.target, "--json", check=0).stdout)
    assert told["sound"] is True
    (target,) = told["targets"]
    assert (target["target"], target["kind"]) == (far.target, "far")
    assert target["remarks"][0]["level"] == "warning"
    assert target["remarks"][0]["fix"].startswith("kind: Oil")
    far.say("closed", "no")
    assert json.loads(far.seatrial("doctor", "--target", far.target, "--json", check=3).stdout)["sound"] is False


def test_an_unknown_target_is_an_error_with_the_nearest_name(far: FarWorld) -> None:
    assert "did you mean 'local'?" in far.seatrial("doctor", "--target", "locl", check=2).stderr
