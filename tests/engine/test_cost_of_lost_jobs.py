"""Jobs whose duration nobody knows cost what the time from their submission costs: `max_cost` holds for them, too."""

from pathlib import Path

import pytest
from scripted import Fate, Script

from seatrial.job import Exit, Outcome, RunResults

LIMIT = 12.0
JOB_S, ESTIMATE_S = 7.0, 4.0  # at 1 a second: the second job may be started, the third not


@pytest.fixture(params=[Outcome.LOST, Outcome.EVICTED, Outcome.SIGNAL])
def script(request: pytest.FixtureRequest, tmp_path: Path) -> Script:
    fate = Fate(end_s=JOB_S, exit=Exit(request.param))
    timeout = {"run": f"{ESTIMATE_S:g}s"}
    return Script(tmp_path, lambda job: fate, count=3, parallel=1, max_cost=LIMIT, retries=0, timeout=timeout)


def assert_the_third_was_not_started(results: RunResults | None) -> None:
    assert results is not None
    assert [len(cell.attempts) for cell in results.cells] == [1, 1, 0]
    assert "14.0" in results.cells[2].why


def test_lost_and_killed_jobs_are_paid_for(script: Script) -> None:
    assert_the_third_was_not_started(script.run())
    assert len(script.world.jobs) == 2


def test_what_was_spent_before_the_run_was_taken_up_counts(script: Script) -> None:
    life = script.life(kill_when=lambda point: point == "written judged" and script.events().count("judged") == 2)
    assert script.run(life) is None
    script.wait(1000.0)
    assert_the_third_was_not_started(script.run())
    assert len(script.world.jobs) == 2


def test_what_still_runs_is_reserved_before_anything_is_started(tmp_path: Path) -> None:
    """The first cell waits for its second attempt while the second cell runs, and gets the only place first after
    attach: 7 are spent, 4 reserved, and 4 more would be too much."""
    fate = Fate(end_s=JOB_S, exit=Exit(Outcome.LOST))
    timeout = {"run": f"{ESTIMATE_S:g}s"}
    script = Script(tmp_path, lambda job: fate, count=2, parallel=1, max_cost=LIMIT, retries=1, timeout=timeout)
    life = script.life(kill_when=lambda point: point == "written submitted" and script.events().count("submitted") == 2)
    assert script.run(life) is None
    results = script.run()
    assert results is not None
    assert [len(cell.attempts) for cell in results.cells] == [1, 1]
    assert len(script.world.jobs) == 2
