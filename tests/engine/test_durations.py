"""The duration of a run is the time that passed, however the clock was set and however often Seatrial was killed."""

from pathlib import Path
from typing import Any

import pytest
from scripted import Fate, Script

from seatrial.engine.states import State, read_run
from seatrial.job import Verdict

DAY_S = 86_400.0
JOB_S = 40.0


@pytest.mark.parametrize("set_s", [-DAY_S, -5.0, 0.0, 5.0, DAY_S])
@pytest.mark.parametrize("killed", [False, True])
def test_a_run_takes_as_long_as_it_took_when_the_clock_is_set(tmp_path: Path, set_s: float, killed: bool) -> None:
    made = Script(tmp_path, lambda job: Fate(end_s=JOB_S), retries=0)
    begun_s = made.world.now_s
    made.world.at(10.0, lambda: setattr(made.world, "wall_ahead_s", set_s))
    if killed:
        assert made.run(kill_after_s=20.0) is None
        made.wait(5.0)
    results = made.run()
    assert results is not None
    assert results.cells[0].verdict is Verdict.PASSED
    assert results.seconds == pytest.approx(made.world.now_s - begun_s, abs=1.0)
    assert JOB_S <= results.seconds < 2 * JOB_S
    assert results.started_s == pytest.approx(begun_s, abs=1.0)


def test_a_limit_is_not_over_because_the_clock_was_set(tmp_path: Path) -> None:
    made = Script(tmp_path, lambda job: Fate(end_s=JOB_S), retries=0)
    assert made.run(kill_after_s=10.0) is None
    made.world.wall_ahead_s = DAY_S
    results = made.run()
    assert results is not None
    assert (results.cells[0].verdict, made.job().told_s) == (Verdict.PASSED, None)


def test_results_that_are_written_again_keep_the_duration(tmp_path: Path) -> None:
    made = Script(tmp_path, lambda job: Fate(end_s=JOB_S), retries=0)
    first = made.run()
    made.wait(DAY_S)
    again = made.run()
    assert first is not None
    assert again is not None
    assert again.seconds == pytest.approx(first.seconds, abs=1.0)


def lines(*found: tuple[str, float, float, str]) -> list[dict[str, Any]]:
    fields = {"run": {"version": 3}, "planned": {"parts": {"job": "here"}, "host": "vm"}}
    return [
        {"n": n, "event": event, "wall_s": wall_s, "at_s": at_s, "cell": "c", "attempt": 1, "part": "job"}
        | fields.get(event, {})
        | ({"boot": boot} if boot else {})
        for n, (event, wall_s, at_s, boot) in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("attached", "seconds"),
    [
        (("attached", 999_999.0, 150.0, "a"), 60.0),  # the same machine, since the same boot
        (("attached", 1_060.0, 3.0, "b"), 80.0),  # another one: by the wall clock
        (("attached", 500.0, 3.0, "b"), 20.0),  # whose clock is behind
        (("attached", 1_060.0, 150.0, ""), 80.0),  # of an older version
    ],
)
def test_times_are_counted_from_process_to_process(attached: tuple[str, float, float, str], seconds: float) -> None:
    begun = [("run", 1_000.0, 100.0, "a"), ("planned", 1_000.0, 100.0, ""), ("submitted", 1_000.0, 110.0, "")]
    if not attached[3]:
        begun[0] = ("run", 1_000.0, 100.0, "")
    _, wall_s, at_s, _ = attached
    record = read_run(lines(*begun, attached, ("started", wall_s, at_s + 10.0, ""), ("ended", 0.0, at_s + 15.0, "")))
    part = record.attempts["c"][0].parts["job"]
    assert record.seconds == seconds + 15.0 - 10.0
    assert part.at_s[State.SUBMITTED] == 10.0
    assert part.at_s[State.ENDED] - part.at_s[State.STARTED] == 5.0
