"""The loss that a log tells, from values."""

import math

import pytest
from trained import brief, train, values

from seatrial.check.loss import LossExpected, check_loss
from seatrial.job import Outcome, Verdict

LOSS = r"loss: (\S+)"


def one(seen_values: list[object], **expected: object) -> tuple[Verdict, str, str]:
    finding = check_loss(train(values("loss", seen_values)), LossExpected(LOSS, **expected))[0]  # type: ignore[arg-type]
    return finding.verdict, finding.class_, finding.message


def test_the_last_value_is_judged_and_equality_is_inside() -> None:
    for last, verdict in ((0.4745, "passed"), (0.4725, "passed"), (0.47451, "failed"), (0.4724, "failed")):
        assert one([9.0, 0.4735, last], target=0.4735, tolerance=0.001)[0] == verdict, last
    assert one([-1.0, -2.02], target=-2.0, tolerance=0.01, relative=True)[0] is Verdict.PASSED
    assert one([-1.0, -2.03], target=-2.0, tolerance=0.01, relative=True)[0] is Verdict.FAILED


@pytest.mark.parametrize(("value", "class_"), [("nan", "nan"), ("inf", "inf"), ("-inf", "inf"), (math.nan, "nan")])
def test_a_loss_that_is_no_number_fails_even_when_a_later_one_is_fine(value: object, class_: str) -> None:
    verdict, found, message = one([2.0, value, 0.47], target=0.47, tolerance=0.1)
    assert (verdict, found) == (Verdict.FAILED, class_)
    assert "at step 1, line 11" in message


def test_infinite_may_be_allowed_on_the_way_but_is_never_near_a_target() -> None:
    assert one(["inf", 2.0], finite=False)[0] is Verdict.PASSED
    assert one([2.0, "inf"], finite=False, target=2.0, tolerance=0.1)[0] is Verdict.FAILED
    assert one([2.0, "nan"], finite=False, target=2.0, tolerance=0.1)[0] is Verdict.FAILED


def test_each_host_is_judged() -> None:
    notes = [values("loss", [2.0, 1.0]), values("loss", [2.0, 1.5], host=1)]
    (finding,) = check_loss(train(*notes), LossExpected(LOSS, target=1.0, tolerance=0.1))
    assert finding.verdict is Verdict.FAILED
    assert "1.5 on host 1" in finding.message


def test_no_loss_at_all_shows_a_line_that_a_pattern_could_be_made_for() -> None:
    (finding,) = check_loss(train(output="begin\ntrain_loss was 2.1\nbye\n"), LossExpected(LOSS))
    assert (finding.verdict, finding.class_) == (Verdict.FAILED, "loss")
    assert finding.evidence.startswith("train_loss was 2.1")


def test_the_last_value_is_known_even_when_the_values_were_too_many_to_keep() -> None:
    seen = train(values("loss", [3.0]), values={"loss": {"0": {"count": 10**6, "first": 3.0, "last": 0.5, "kept": 1}}})
    (finding,) = check_loss(seen, LossExpected(LOSS, target=0.5, tolerance=0.0))
    assert finding.verdict is Verdict.PASSED
    (gone,) = check_loss(train(values={"loss": {"0": {"count": 9, "last": "nan"}}}), LossExpected(LOSS))
    assert (gone.verdict, gone.class_) == (Verdict.FAILED, "nan")


def test_a_last_loss_that_is_no_number_is_not_read_as_an_earlier_one() -> None:
    seen = train(values("loss", [0.5, "?"]), values={"loss": {"0": {"count": 2, "last": "?", "kept": 2}}})
    (finding,) = check_loss(seen, LossExpected(LOSS, target=0.5, tolerance=0.1))
    assert finding.verdict is Verdict.FAILED


def test_a_job_ended_for_its_loss_says_how_soon() -> None:
    stopped = {"what": "value", "name": "loss", "host": 0, "line": 12, "text": "loss: nan", "seconds_after": 0.25}
    (finding,) = check_loss(train(outcome=Outcome.STOPPED, code=None, stopped=stopped), LossExpected(LOSS))
    assert (finding.verdict, finding.class_) == (Verdict.FAILED, "nan")
    assert "0.25 s after that line" in finding.message
    assert finding.evidence == "loss: nan"


def test_a_target_that_a_job_ended_early_never_came_to_is_not_judged() -> None:
    seen = train(values("loss", [5.0]), outcome=Outcome.TIMEOUT, code=None)
    assert brief(check_loss(seen, LossExpected(LOSS, target=1.0, tolerance=0.1))) == {"loss": ("skipped", "")}


CURVE = {0: 5.0, 1: 4.0, 2: 3.0, 4: 1.0}


def curve(seen_values: list[object], tolerance: float = 0.02, outcome: Outcome = Outcome.EXITED) -> tuple[str, str]:
    expected = LossExpected(LOSS, tolerance=tolerance, relative=True, curve=CURVE)
    findings = check_loss(train(values("loss", seen_values), outcome=outcome), expected)
    finding = next(finding for finding in findings if finding.check == "loss curve")
    return str(finding.verdict), finding.message


def test_a_curve_is_compared_step_by_step() -> None:
    assert curve([5.1, 4.0, 3.0, 99.0, 1.02])[0] == "passed"  # step 3 was not recorded
    verdict, message = curve([5.0, 4.0, 3.5, 2.0, 1.1])
    assert verdict == "failed"
    assert "2 of 4 steps are off the recorded curve, first step 2: 3.5" in message


def test_a_curve_that_ends_before_the_recorded_one_is_not_the_same() -> None:
    verdict, message = curve([5.0, 4.0])
    assert verdict == "failed"
    assert "goes to step 4" in message
    assert curve([5.0, 4.0], outcome=Outcome.STOPPED)[0] == "passed"


def test_lines_without_steps_cannot_be_compared() -> None:
    note = values("loss", [5.0, 4.0])
    note["steps"] = [None, None]
    findings = check_loss(train(note), LossExpected(LOSS, tolerance=1.0, curve=CURVE))
    assert brief(findings)["loss curve"] == ("failed", "loss")


def test_the_finding_carries_the_curve_in_few_points() -> None:
    (finding,) = check_loss(train(values("loss", [float(n) for n in range(1001)])), LossExpected(LOSS))
    assert 150 <= len(finding.data["curve"]) <= 200
    assert finding.data["curve"][1] == [6, 6.0]
