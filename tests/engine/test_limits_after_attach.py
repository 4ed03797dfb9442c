"""A process that takes up a run ends its jobs when the process before it would have: limits count from the times in the
journal."""

from pathlib import Path

import pytest
from scripted import Fate, Script
from simulation import QUEUE_S, READY_S, RUN_S

from seatrial.job import Outcome, Verdict

ENDLESS = Fate()
WITHOUT_PLACE = Fate(start_s=None)
HEARD_S = 30.0  # at most, from taking up a job to ending it when its limit is over


def over_limit(folder: Path, shape: str, fate: Fate) -> Script:
    return Script(folder, lambda job: fate, shape=shape, retries=0)


def told_after_s(script: Script) -> float:
    """When the only job was told to end, after it was submitted."""
    job = script.job()
    assert job.told_s is not None
    first = job.events[0].time
    assert first is not None
    return job.told_s - first.wall_s


LIMITS = pytest.mark.parametrize(
    ("shape", "fate", "limit_s", "outcome"),
    [
        pytest.param("single", WITHOUT_PLACE, QUEUE_S, Outcome.QUEUE, id="queue"),
        pytest.param("pair", ENDLESS, READY_S, Outcome.UNREADY, id="ready"),
        pytest.param("single", ENDLESS, RUN_S, Outcome.TIMEOUT, id="run"),
    ],
)


@LIMITS
def test_a_limit_is_over_when_it_would_have_been(
    tmp_path: Path, shape: str, fate: Fate, limit_s: float, outcome: Outcome
) -> None:
    whole = over_limit(tmp_path / "whole", shape, fate)
    assert whole.run() is not None
    taken_up = over_limit(tmp_path / "taken-up", shape, fate)
    assert taken_up.run(kill_after_s=0.8 * limit_s) is None
    results = taken_up.run()
    assert results is not None
    attempt = results.cells[0].attempts[-1]
    assert outcome in [attempt.exit.outcome, *(part.exit.outcome for part in attempt.parts.values())]
    assert told_after_s(taken_up) == pytest.approx(told_after_s(whole), abs=1.0)


@LIMITS
def test_a_limit_goes_on_while_nobody_works_on_the_run(
    tmp_path: Path, shape: str, fate: Fate, limit_s: float, outcome: Outcome
) -> None:
    made = over_limit(tmp_path, shape, fate)
    assert made.run(kill_after_s=0.5 * limit_s) is None
    made.wait(10 * limit_s)
    attached_s = made.world.now_s
    results = made.run()
    assert results is not None
    attempt = results.cells[0].attempts[-1]
    assert outcome in [attempt.exit.outcome, *(part.exit.outcome for part in attempt.parts.values())]
    told_s = made.job().told_s
    assert told_s is not None
    assert told_s - attached_s < HEARD_S


def test_a_job_that_started_in_time_while_nobody_looked_goes_on(tmp_path: Path) -> None:
    made = Script(tmp_path, lambda job: Fate(start_s=QUEUE_S - 5, end_s=4 * QUEUE_S), retries=0)
    assert made.run(kill_after_s=QUEUE_S / 2) is None
    made.wait(2 * QUEUE_S)
    results = made.run()
    assert results is not None
    assert (results.cells[0].verdict, made.job().told_s) == (Verdict.PASSED, None)


def test_a_job_that_was_ready_in_time_while_nobody_looked_goes_on(tmp_path: Path) -> None:
    fates = {"server": Fate(ready_s=READY_S - 5), "driver": Fate(end_s=10.0)}
    made = Script(tmp_path, lambda job: fates[job.part], shape="pair", retries=0)
    assert made.run(kill_after_s=READY_S / 2) is None
    made.wait(2 * READY_S)
    results = made.run()
    assert results is not None
    assert results.cells[0].verdict is Verdict.PASSED
