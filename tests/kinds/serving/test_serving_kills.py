"""Seatrial, the driver or the server of a serving trial is killed: no answer is lost, none that is there is asked for
again, no server is left. A sample here; every failpoint and 100 random instants with `make test-all`."""

import contextlib
import os
import random
import signal
import subprocess
from itertools import product

import pytest
from llama import command
from many_cases import (
    AT_A_TIME,
    DRIVER,
    VICTIMS,
    answered_so_far,
    assert_all_accounted_for,
    assert_all_answered,
    kill,
    write_cases,
)

from engine.asking import WAIT_S, pid_of, until
from world import EVERY, World

SERVER = "serve.py"
FEW, MANY = 30, 400


def suite(world: World, count: int) -> None:
    world.suite(f"""
name: kills
trials:
  tiny:
    kind: serving
    model: tiny
    retries: 0
    server: {{command: '{command()}', ready: {{http: /health, within: 10m}}}}
    cases: [{write_cases(world, count)}]
    concurrency: {AT_A_TIME}
    stream: false
    batching: false
""")


def test_a_driver_that_is_killed_again_and_again_goes_on_where_its_records_end(world: World) -> None:
    suite(world, MANY)
    for _ in range(10):
        process = world.start("run", "suite.yaml")
        kills = [killed_after(world, process, answers) for answers in (20, 40)]
        process.communicate(timeout=WAIT_S)
        assert process.returncode == 0
        assert_all_answered(world, MANY, kills=sum(kills))
        if all(kills):
            return
    raise AssertionError("its driver was never killed twice")  # it is done too soon each time


def killed_after(world: World, process: "subprocess.Popen[str]", answers: int) -> bool:
    """Whether its driver could be killed when it had so many answers. On a busy machine it may be done by then."""
    until(lambda: sum(answered_so_far(world)) >= answers or process.poll() is not None)
    server = pid_of(world, SERVER)
    if server is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(server, signal.SIGSTOP)  # so that the driver has no end before it is killed
    killed = sum(answered_so_far(world)) < MANY and kill(world, DRIVER)
    with contextlib.suppress(ProcessLookupError):
        os.kill(server, signal.SIGCONT)
    return killed


@pytest.mark.timeout(3600)
def test_seatrial_killed_at_each_point_alone_or_with_its_driver_or_server(world: World) -> None:
    suite(world, FEW)
    log = world.folder / "points"
    world.seatrial("run", "suite.yaml", check=0, SEATRIAL_FAILPOINT_LOG=str(log))
    names = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    running = len(names) - names[::-1].index("submit done")  # the driver is at work, and nobody has written that down
    chosen = [(running, victim) for victim in VICTIMS]
    for point, victim in product(range(1, len(names) + 1), VICTIMS) if EVERY else chosen:
        kill_and_attach(world, point, names[point - 1], victim)


def kill_and_attach(world: World, point: int, name: str, victim: str) -> None:
    """Driver or server are killed while nobody watches them."""
    killed = world.seatrial("run", "suite.yaml", SEATRIAL_FAILPOINT=str(point))
    assert killed.returncode == -9, f"{point} {name}: {killed.stdout}{killed.stderr}"
    other = victim != "seatrial" and kill(world, DRIVER if victim == "driver" else SERVER)
    attached = world.seatrial("attach", "last")
    said = f"{point} {name}, {victim}: exit {attached.returncode}\n{attached.stdout}{attached.stderr}"
    if victim == "server" and other:
        assert attached.returncode in (0, 1), said
        assert_all_accounted_for(world, FEW)
    else:
        assert attached.returncode == 0, said
        assert_all_answered(world, FEW, kills=int(other))


@pytest.mark.parametrize("seed", range(99 if EVERY else 3))  # a third for each of them
def test_a_kill_of_any_of_them_at_a_random_instant(world: World, seed: int) -> None:
    count, victim = 300 if EVERY else 100, VICTIMS[seed % 3]
    instant = random.Random(seed).randrange(count)
    suite(world, count)
    process = world.start("run", "suite.yaml")
    until(lambda: sum(answered_so_far(world)) >= instant or process.poll() is not None)
    if victim == "seatrial":
        process.kill()
        process.communicate()
        world.seatrial("attach", "last", check=0)
        return assert_all_answered(world, count, kills=0)
    killed = kill(world, DRIVER if victim == "driver" else SERVER)
    process.communicate(timeout=WAIT_S)
    if victim == "server":
        return assert_all_accounted_for(world, count)
    assert process.returncode == 0
    return assert_all_answered(world, count, kills=int(killed))
