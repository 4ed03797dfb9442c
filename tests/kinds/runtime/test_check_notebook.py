"""Findings of notebooks, and known failures, from values."""

from typing import Any

import pytest

from seatrial.checks import apply_xfails
from seatrial.job import Exit, Finding, ObservedStep, Outcome, Verdict, worst
from seatrial.kinds.runtime.notebook import check_notebook
from seatrial.suite import Xfail

EXITED = Exit(Outcome.EXITED, 0)


def seen(*notes: dict[str, Any], passes: tuple[str, ...] = ("fresh",), **more: Any) -> ObservedStep:
    fields = {"outcome": Outcome.EXITED, "code": 0, "started_s": 0.0, **more}
    return ObservedStep("notebook a.ipynb", "notebook", {"passes": list(passes)}, notes=list(notes), **fields)


def over(name: str, state: str, class_: str = "", message: str = "", **more: Any) -> dict[str, Any]:
    return {
        "note": "passed-over",
        "pass": name,
        "state": state,
        "class": class_,
        "message": message,
        "seconds": 2.5,
        **more,
    }


def cell(name: str, number: int, state: str, **more: Any) -> dict[str, Any]:
    return {"note": "cell", "pass": name, "cell": number, "state": state, "class": "", **more}


def test_each_pass_has_a_finding_with_the_metrics_of_its_cells() -> None:
    notes = [
        cell("fresh", 2, "passed", seconds=0.5, peak_memory_bytes=1000),
        over("fresh", "passed"),
        cell("rerun", 2, "failed", error="ValueError: no", traceback="Traceback\nValueError: no"),
        over("rerun", "failed", "error", "cell 2: ValueError: no"),
    ]
    fresh, rerun = check_notebook(seen(*notes, passes=("fresh", "rerun")), EXITED)
    assert (fresh.step, fresh.verdict, fresh.message) == ("notebook a.ipynb fresh", Verdict.PASSED, "1 cell in 2.5 s")
    assert fresh.data["cells"] == [{"cell": 2, "state": "passed", "seconds": 0.5, "peak_memory_bytes": 1000}]
    assert (rerun.step, rerun.verdict, rerun.class_) == ("notebook a.ipynb rerun", Verdict.FAILED, "error")
    assert rerun.evidence == "ValueError: no\nTraceback\nValueError: no"


@pytest.mark.parametrize("class_", ["error", "shell", "dead", "memory", "broken"])
def test_a_pass_that_failed_keeps_its_class(class_: str) -> None:
    (found,) = check_notebook(seen(over("fresh", "failed", class_, "why")), EXITED)
    assert (found.verdict, found.class_) == (Verdict.FAILED, class_)


def test_a_pass_out_of_time_is_a_timeout() -> None:
    (found,) = check_notebook(seen(over("fresh", "failed", "timeout", "over")), EXITED)
    assert (found.verdict, found.class_) == (Verdict.TIMEOUT, "timeout")


def test_each_cell_that_failed_has_a_finding_where_the_pass_goes_on() -> None:
    notes = [
        cell("fresh", 1, "failed", message="ValueError: no", **{"class": "error"}),
        cell("fresh", 2, "passed"),
        cell("fresh", 3, "failed", message="timed out after 5 s (cell limit)", source="wait()", **{"class": "timeout"}),
        over("fresh", "failed", "error", "cell 1: ValueError: no"),
    ]
    first, second = check_notebook(seen(*notes), EXITED)
    assert (first.check, first.verdict, first.message) == ("notebook", Verdict.FAILED, "cell 1: ValueError: no")
    assert (second.step, second.check, second.verdict) == ("notebook a.ipynb fresh", "cell 3", Verdict.TIMEOUT)
    assert second.message == "cell 3: timed out after 5 s (cell limit)"
    assert "wait()" in second.evidence


def test_a_skip_carries_its_reason() -> None:
    (found,) = check_notebook(seen(over("fresh", "skipped", "", "skipped: path not found: /data")), EXITED)
    assert (found.verdict, found.message) == (Verdict.SKIPPED, "path not found: /data")


def test_a_failed_shell_command_shows_the_cell_that_ran_it() -> None:
    notes = [
        cell("fresh", 3, "failed", error="`x` failed with exit code 1", source="!x"),
        over("fresh", "failed", "shell"),
    ]
    (found,) = check_notebook(seen(*notes), EXITED)
    assert found.evidence == "`x` failed with exit code 1\ncell 3:\n!x"


@pytest.mark.parametrize(
    ("outcome", "verdict", "class_"),
    [
        (Outcome.MEMORY, Verdict.FAILED, "memory"),
        (Outcome.SIGNAL, Verdict.FAILED, "dead"),
        (Outcome.TIMEOUT, Verdict.TIMEOUT, "timeout"),
        (Outcome.STALL, Verdict.TIMEOUT, "timeout"),
        (Outcome.EXITED, Verdict.FAILED, "broken"),
        (Outcome.INFRA, Verdict.INFRA, "infra"),
    ],
)
def test_passes_that_the_driver_did_not_live_to_tell_are_there_with_a_class(
    outcome: Outcome, verdict: Verdict, class_: str
) -> None:
    notes = [over("fresh", "passed"), cell("rerun", 2, "passed")]
    step = seen(*notes, passes=("fresh", "rerun", "restart"), outcome=outcome, code=None)
    fresh, rerun, restart = check_notebook(step, EXITED)
    assert fresh.verdict is Verdict.PASSED
    assert (rerun.verdict, rerun.class_) == (restart.verdict, restart.class_) == (verdict, class_)
    assert rerun.message.endswith("after cell 2")


def test_a_job_that_ended_before_leaves_a_finding_for_each_pass() -> None:
    step = seen(passes=("fresh", "rerun"), outcome=None, code=None, started_s=None)
    found = check_notebook(step, Exit(Outcome.LOST))
    assert [(one.step, one.verdict) for one in found] == [
        ("notebook a.ipynb fresh", Verdict.INFRA),
        ("notebook a.ipynb rerun", Verdict.INFRA),
    ]


def test_a_pass_that_failed_without_being_asked_for_does_not_vanish() -> None:
    notes = [over("fresh", "failed", "error", "x", implied=True), over("restart", "passed")]
    found = check_notebook(seen(*notes, passes=("restart",)), EXITED)
    assert [(one.step, one.verdict) for one in found] == [
        ("notebook a.ipynb fresh", Verdict.FAILED),
        ("notebook a.ipynb restart", Verdict.PASSED),
    ]


def test_notes_that_are_garbage_never_raise() -> None:
    notes = [{}, {"note": 7}, over("fresh", "exploded", "no-such-class"), cell("fresh", 1, "failed", error=None)]  # type: ignore[arg-type]
    (found,) = check_notebook(seen(*notes), EXITED)
    assert (found.verdict, found.class_) == (Verdict.FAILED, "error")


def finding(step: str, verdict: Verdict) -> Finding:
    return Finding(step, "check", verdict, message="what happened")


def after(xfail: Xfail, **findings: Verdict) -> dict[str, str]:
    result = apply_xfails([finding(step, verdict) for step, verdict in findings.items()], [xfail])
    return {one.step: one.verdict.value for one in result}


def test_a_known_failure_is_excused_with_its_reason() -> None:
    (found,) = apply_xfails([finding("import x", Verdict.FAILED)], [Xfail(why="issue 41", step="import *")])
    assert found.verdict is Verdict.XFAIL
    assert found.message == "expected to fail (issue 41): what happened"
    assert worst([found.verdict]).good


def test_a_known_timeout_is_excused_but_never_infra_or_invalid() -> None:
    known = Xfail(why="why")
    assert after(known, a=Verdict.TIMEOUT, b=Verdict.INFRA, c=Verdict.INVALID) == {
        "a": "xfail",
        "b": "infra",
        "c": "invalid",
    }


def test_what_is_not_covered_stays_failed() -> None:
    assert after(Xfail(why="why", step="a"), a=Verdict.FAILED, b=Verdict.FAILED) == {"a": "xfail", "b": "failed"}


def test_a_known_failure_that_passed_is_an_xpass() -> None:
    assert after(Xfail(why="why", step="a"), a=Verdict.PASSED, b=Verdict.PASSED) == {"a": "xpass", "b": "passed"}


def test_a_known_failure_of_a_whole_cell_that_passed_adds_one_finding() -> None:
    assert after(Xfail(why="why"), a=Verdict.PASSED, b=Verdict.SKIPPED) == {
        "a": "passed",
        "b": "skipped",
        "job": "xpass",
    }


def test_one_failure_is_enough_for_what_a_glob_covers() -> None:
    assert after(Xfail(why="why", step="*"), a=Verdict.FAILED, b=Verdict.PASSED) == {"a": "xfail", "b": "passed"}


@pytest.mark.parametrize("verdict", [Verdict.SKIPPED, Verdict.INFRA])
def test_nothing_is_said_of_a_known_failure_that_was_not_put_to_the_test(verdict: Verdict) -> None:
    assert after(Xfail(why="why", step="a"), a=verdict) == {"a": verdict.value}
    assert after(Xfail(why="why", step="no such step"), a=verdict) == {"a": verdict.value}
