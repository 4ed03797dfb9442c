"""A run goes on from its folder alone: the suite may be changed or gone."""

import signal
from collections import Counter

from seatrial.job import ExitCode
from seatrial.record.folder import summed_plan
from world import World

SUITE = """
name: gone
runtimes: {{r: {{env: {{WORD: "${{n}}"}}}}}}
trials:
  t:
    kind: runtime
    facts: false
    matrix: {{n: [1, 2, 3], runtime: all}}
    run: ['echo "${{n}} $WORD" >> {starts}; test ${{n}} != 2']
"""


def kill(world: World) -> None:
    """While the first cell runs."""
    killed = world.seatrial("run", "suite.yaml", "--parallel", "1", SEATRIAL_FAILPOINT="8")
    assert killed.returncode == -signal.SIGKILL
    assert not world.run().results.exists()


def test_a_killed_run_is_finished_after_its_suite_was_deleted(world: World) -> None:
    starts = world.folder / "starts"
    path = world.suite(SUITE.format(starts=starts))
    kill(world)
    path.unlink()
    world.seatrial("attach", "last", check=1)
    assert list(world.verdicts().values()) == ["passed", "failed", "passed"]
    assert Counter(starts.read_text().splitlines()) == {"1 1": 1, "2 2": 1, "3 3": 1}
    assert world.left() == []


def test_a_run_of_the_version_before_is_refused_with_its_name(world: World) -> None:
    world.suite(SUITE.format(starts=world.folder / "starts"))
    kill(world)
    run = world.run()
    old = {"version": 1, "seatrial": "0.2.0", "run": run.run, "cells": [], "holes": [], "suite": {"data": {}}}
    run.plan.write_bytes(summed_plan(old))
    refused = world.seatrial("attach", "last", check=ExitCode.USAGE)
    assert f"{run.run} was planned by Seatrial 0.2.0; finish it with that version" in refused.stderr
