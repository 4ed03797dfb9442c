"""`seatrial logs`: of runs that are over, of jobs that still run, and of both at once."""

import os
import signal
import time
from pathlib import Path

import pytest
from far_world import PLUGINS

from seatrial.engine.logs import ShownLogs
from seatrial.record import owner_of
from world import World


def suite(world: World, *trials: str) -> None:
    world.suite("name: logs\ntrials:\n" + "".join(f"  {trial}\n" for trial in trials))


def waits_for(path: Path) -> str:
    return f"until test -e {path}; do sleep 0.05; done"


def log_of(world: World, cell: str, attempt: int = 1) -> str:
    hash_ = next(one.hash for one in world.results().cells if one.id == cell)
    return (world.run().attempt(hash_, attempt) / "log.txt").read_text()


def test_one_cell_is_shown_as_it_is_and_several_with_their_names(world: World) -> None:
    suite(world, "a: {kind: runtime, matrix: {n: [1, 2]}, run: ['echo one ${n}; printf two']}")
    world.seatrial("run", "suite.yaml", check=0)
    assert world.seatrial("logs", "last", "n=1", check=0).stdout == log_of(world, "a[n=1]")
    lines = world.seatrial("logs", "last", check=0).stdout.splitlines()
    assert [line for line in lines if "one" in line and "---" not in line] == ["a[n=1] | one 1", "a[n=2] | one 2"]
    assert all(line.startswith(("a[n=1] | ", "a[n=2] | ")) for line in lines)


def test_the_log_of_an_earlier_attempt_can_be_had(world: World) -> None:
    count = world.folder / "count"
    count.mkdir()
    suite(
        world,
        f"a: {{kind: runtime, retries: 1, retry_on: [failed], run: ['touch {count}/$$; ls {count} | wc -l; exit 1']}}",
    )
    world.seatrial("run", "suite.yaml", check=1)
    assert world.seatrial("logs", "last", "a", check=0).stdout == log_of(world, "a", 2)
    assert world.seatrial("logs", "last", "a", "--attempt", "1", check=0).stdout == log_of(world, "a", 1)
    done = world.seatrial("logs", "last", "a", "--attempt", "3", check=0)
    assert "no log of a, attempt 3" in done.stderr


def test_a_mistake_is_answered_with_what_was_meant(world: World) -> None:
    suite(world, "works: {kind: runtime, matrix: {n: [1]}, run: ['true']}")
    world.seatrial("run", "suite.yaml", check=0)
    assert "every cell has ended" in world.seatrial("logs", "last", "-f", check=0).stderr
    assert "did you mean 'works'" in world.seatrial("logs", "last", "work", check=2).stderr
    assert "no n '2'" in world.seatrial("logs", "last", "n=2", check=2).stderr
    assert (
        "--attempt cannot be combined with --follow"
        in world.seatrial("logs", "last", "-f", "--attempt", "1", check=2).stderr
    )


def test_a_job_that_runs_is_followed_to_its_end_and_left_alone(world: World) -> None:
    go = world.folder / "go"
    suite(
        world,
        "done: {kind: runtime, run: ['echo over']}",
        f"slow: {{kind: runtime, run: ['echo first; {waits_for(go)}; echo second']}}",
    )
    world.seatrial("run", "suite.yaml", "--parallel", "1", "--detach", check=0)
    with world.start("logs", "last", "slow", "-f") as following:
        assert following.stdout is not None
        seen = ""
        while "first\n" not in seen.replace("echo first", ""):
            seen += following.stdout.readline()
        so_far = world.seatrial("logs", "last", "slow", check=0).stdout
        assert "\nfirst\n" in so_far
        assert "\nsecond\n" not in so_far
        go.touch()
        seen += following.stdout.read()
        assert following.wait() == 0
    world.seatrial("attach", "last", check=0)
    assert seen == log_of(world, "slow")
    assert world.verdicts() == {"done": "passed", "slow": "passed"}


def test_a_running_job_that_prints_the_secret_of_another_is_shown_without_it(world: World) -> None:
    go, secret = world.folder / "go", "s3cret-of-another"
    (world.folder / "seen").write_text(f"before {secret[:6]}\nit is {secret} and\n")
    suite(
        world,
        "has: {kind: runtime, env: {TOKEN: {secret: TOKEN}}, run: ['true']}",
        f"tells: {{kind: runtime, run: ['cat {world.folder}/seen; {waits_for(go)}; echo second']}}",
    )
    world.seatrial("run", "suite.yaml", "--detach", check=0, TOKEN=secret)
    with world.start("logs", "last", "tells", "-f", TOKEN=secret) as following:
        assert following.stdout is not None
        seen = ""
        while "it is" not in seen:
            seen += following.stdout.readline()
        now = world.seatrial("logs", "last", "tells", check=0, TOKEN=secret).stdout
        unknown = world.seatrial("logs", "last", "tells", check=0)
        go.touch()
        seen += following.stdout.read()
        assert following.wait() == 0
    world.seatrial("attach", "last", check=0, TOKEN=secret)
    assert seen == log_of(world, "tells")
    for text in (seen, now):
        assert f"before {secret[:6]}\nit is ••• and\n" in text
    assert "if another job prints this secret, it is not masked: secret TOKEN: environment variable" in unknown.stderr


def test_nothing_is_lost_of_jobs_that_write_until_they_are_removed(world: World) -> None:
    suite(world, "a: {kind: runtime, matrix: {n: [1, 2, 3, 4]}, run: ['seq 1 30000']}")
    world.seatrial("run", "suite.yaml", "--parallel", "2", "--detach", check=0)
    followed = world.seatrial("logs", "last", "a[*", "-f", check=0).stdout.splitlines()
    world.seatrial("attach", "last", check=0)
    for number in range(1, 5):
        name = f"a[n={number}]"
        own = [line.removeprefix(f"{name} | ") for line in followed if line.startswith(f"{name} | ")]
        assert own == log_of(world, name).splitlines()


def test_with_nobody_at_the_run_its_jobs_are_still_followed(world: World) -> None:
    go = world.folder / "go"
    suite(world, f"slow: {{kind: runtime, run: ['echo first; {waits_for(go)}; echo second']}}")
    world.seatrial("run", "suite.yaml", "--detach", check=0)
    with world.start("logs", "last", "-f") as following:
        assert following.stdout is not None
        seen = ""
        while "first\n" not in seen.replace("echo first", ""):
            seen += following.stdout.readline()
        owner = owner_of(world.run().path)
        assert owner is not None
        os.kill(owner.pid, signal.SIGKILL)
        while owner.alive():  # else whoever attaches might still see it at work
            time.sleep(0.02)
        go.touch()
        seen += following.stdout.read()
        assert following.wait() == 0
    assert seen.endswith("slow | second\n") or seen.endswith("\nsecond\n")
    world.seatrial("attach", "last", check=0)


def test_ctrl_c_ends_the_view_and_not_the_job(world: World) -> None:
    go = world.folder / "go"
    suite(world, f"slow: {{kind: runtime, run: ['echo first; {waits_for(go)}']}}")
    world.seatrial("run", "suite.yaml", "--detach", check=0)
    with world.start("logs", "last", "-f") as following:
        assert following.stdout is not None
        following.stdout.readline()
        following.send_signal(signal.SIGINT)
        assert "Traceback" not in following.stdout.read()
        assert following.wait() == 130
    go.touch()
    world.seatrial("attach", "last", check=0)


def test_parts_of_an_attempt_are_named(world: World) -> None:
    world.env["PYTHONPATH"] = str(PLUGINS)
    suite(world, "a: {kind: asking, retries: 0, count: 3}")
    world.seatrial("run", "suite.yaml", check=0)
    (cell,) = world.results().cells
    log = (world.run().attempt(cell.hash, 1, "server") / "log.txt").read_text()
    lines = world.seatrial("logs", "last", check=0).stdout.splitlines()
    assert [line for line in lines if line.startswith("a server | ")] == [
        f"a server | {one}" for one in log.splitlines()
    ]


@pytest.mark.parametrize(
    ("shown", "log", "rest"),
    [
        ([], b"a\nb\n", b"a\nb\n"),
        ([b"a\n"], b"a\nb\n", b"b\n"),
        ([b"a\nb"], b"a\nbc\nd\n", b"c\nd\n"),
        ([b"a\nb\n"], b"a\nb\n", b""),
        ([b"[0] a\n[1] x\n"], b"[0] a\n[0] b\n[1] x\n[1] y\n", b"[0] b\n[1] y\n"),
        ([b"a\nb\nc\n"], b"a\n[seatrial: 2 bytes left out here]\nz\n", None),
    ],
)
def test_what_was_not_shown_of_a_log_is_found(shown: list[bytes], log: bytes, rest: bytes | None) -> None:
    seen = ShownLogs()
    for block in shown:
        seen.add(block)
    assert seen.rest(log) == rest
