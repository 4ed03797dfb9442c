"""The loss that a log tells, from values."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from seatrial.job import Outcome, Verdict
from seatrial.kinds.training.loss import check_loss
from seatrial.kinds.training.model import Loss
from trained import brief, train, values

LOSS = r"loss: (\S+)"
PLAIN, NEAR_1 = Loss(pattern=LOSS), Loss(pattern=LOSS, target=1.0, tolerance=0.1)


def curve_within(tolerance: str | float) -> Loss:
    return Loss(pattern=LOSS, curve="curve.json", tolerance=tolerance)


def one(seen_values: list[object], **expected: object) -> tuple[Verdict, str, str]:
    finding = check_loss(train(values("loss", seen_values)), Loss(pattern=LOSS, **expected))[0]  # type: ignore[arg-type]
    return finding.verdict, finding.class_, finding.message


def test_the_last_value_is_judged_and_equality_is_inside() -> None:
    for last, verdict in ((0.4745, "passed"), (0.4725, "passed"), (0.47451, "failed"), (0.4724, "failed")):
        assert one([9.0, 0.4735, last], target=0.4735, tolerance=0.001)[0] == verdict, last
    assert one([-1.0, -2.02], target=-2.0, tolerance="1%")[0] is Verdict.PASSED
    assert one([-1.0, -2.03], target=-2.0, tolerance="1%")[0] is Verdict.FAILED


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
    (finding,) = check_loss(train(*notes), NEAR_1)
    assert finding.verdict is Verdict.FAILED
    assert "1.5 on host 1" in finding.message


def test_a_host_that_tells_no_loss_is_named_unless_any_will_do() -> None:
    seen = train(values("loss", [2.0, 1.0]), values={"loss": {"1": {"count": 0, "last": None}}})
    (finding,) = check_loss(seen, NEAR_1, hosts=3)
    assert (finding.verdict, finding.class_) == (Verdict.FAILED, "loss")
    assert (
        finding.message == "hosts 1, 2 reported no loss, but host 0 did; if one host is enough, set `log: {hosts: any}`"
    )
    assert one([2.0, 1.0])[0] is Verdict.PASSED
    early = train(values("loss", [2.0]), outcome=Outcome.TIMEOUT, code=None)
    assert brief(check_loss(early, PLAIN, hosts=2)) == {"loss": ("skipped", "")}


def test_no_loss_at_all_shows_a_line_that_a_pattern_could_be_made_for() -> None:
    (finding,) = check_loss(train(output="begin\ntrain_loss was 2.1\nbye\n"), PLAIN)
    assert (finding.verdict, finding.class_) == (Verdict.FAILED, "loss")
    assert finding.evidence.startswith("train_loss was 2.1")


def test_the_last_value_is_known_even_when_the_values_were_too_many_to_keep() -> None:
    seen = train(values("loss", [3.0]), values={"loss": {"0": {"count": 10**6, "first": 3.0, "last": 0.5, "kept": 1}}})
    (finding,) = check_loss(seen, Loss(pattern=LOSS, target=0.5, tolerance=0.0))
    assert finding.verdict is Verdict.PASSED
    (gone,) = check_loss(train(values={"loss": {"0": {"count": 9, "last": "nan"}}}), PLAIN)
    assert (gone.verdict, gone.class_) == (Verdict.FAILED, "nan")


def test_a_last_loss_that_is_no_number_is_not_read_as_an_earlier_one() -> None:
    seen = train(values("loss", [0.5, "?"]), values={"loss": {"0": {"count": 2, "last": "?", "kept": 2}}})
    (finding,) = check_loss(seen, Loss(pattern=LOSS, target=0.5, tolerance=0.1))
    assert finding.verdict is Verdict.FAILED


def test_a_job_ended_for_its_loss_says_how_soon() -> None:
    stopped = {"what": "value", "name": "loss", "host": 0, "line": 12, "text": "loss: nan", "seconds_after": 0.25}
    (finding,) = check_loss(train(outcome=Outcome.STOPPED, code=None, stopped=stopped), PLAIN)
    assert (finding.verdict, finding.class_) == (Verdict.FAILED, "nan")
    assert "0.25 s after that line" in finding.message
    assert finding.evidence == "loss: nan"


def test_a_target_that_a_job_ended_early_never_came_to_is_not_judged() -> None:
    seen = train(values("loss", [5.0]), outcome=Outcome.TIMEOUT, code=None)
    assert brief(check_loss(seen, NEAR_1)) == {"loss": ("skipped", "")}


CURVE = {0: 5.0, 1: 4.0, 2: 3.0, 4: 1.0}


def curve(seen_values: list[object], outcome: Outcome = Outcome.EXITED) -> tuple[str, str]:
    findings = check_loss(train(values("loss", seen_values), outcome=outcome), curve_within("2%"), CURVE)
    finding = next(finding for finding in findings if finding.check == "loss curve")
    return str(finding.verdict), finding.message


def test_a_curve_is_compared_step_by_step() -> None:
    assert curve([5.1, 4.0, 3.0, 99.0, 1.02])[0] == "passed"  # step 3 was not recorded
    verdict, message = curve([5.0, 4.0, 3.5, 2.0, 1.1])
    assert verdict == "failed"
    assert "2 of 4 steps differ from the recorded curve, first step 2: 3.5" in message


def test_a_curve_that_ends_before_the_recorded_one_is_not_the_same() -> None:
    verdict, message = curve([5.0, 4.0])
    assert verdict == "failed"
    assert "recorded curve (step 4)" in message
    assert curve([5.0, 4.0], outcome=Outcome.STOPPED) == (
        "passed",
        "compared 2 of 4 steps of the recorded curve: all within 2%",
    )


def stepped(steps: Sequence[int], host: int = 0) -> dict[str, Any]:
    note = values("loss", [10.0 - step / 100 for step in steps], host=host)
    return {**note, "steps": list(steps)}


def like(recorded: Sequence[int], *notes: dict[str, Any], **result: Any) -> tuple[str, str]:
    expected = {step: 10.0 - step / 100 for step in recorded}
    findings = check_loss(train(*notes, **result), curve_within(0.001), expected)
    finding = next(one for one in findings if one.check == "loss curve")
    return str(finding.verdict), finding.message


@pytest.mark.parametrize(
    ("steps", "lacks"),
    [
        ([0, 2], "the log has only 2 of 3 steps of the recorded curve; first missing: step 1"),
        ([1, 2], "the log has only 2 of 3 steps of the recorded curve; first missing: step 0"),
        ([0, 1, 2], ""),
        ([0, 1, 2, 3, 9], ""),
    ],
)
def test_steps_of_the_curve_that_the_log_has_not_are_missed(steps: list[int], lacks: str) -> None:
    verdict, message = like(range(3), stepped(steps))
    assert (verdict, message if lacks else "") == ("failed" if lacks else "passed", lacks)


def test_a_log_that_prints_every_tenth_step_is_compared_by_those() -> None:
    every = range(100)
    assert like(every, stepped(range(0, 100, 10))) == (
        "passed",
        "compared 10 of 100 steps of the recorded curve: all within 0.001",
    )
    assert like(every, stepped(range(10, 101, 10)))[0] == "passed"
    gap = [step for step in range(0, 100, 10) if step not in (40, 50)]
    assert like(every, stepped(gap)) == (
        "failed",
        "the log has only 8 of 100 steps of the recorded curve; first missing: step 31",
    )
    assert "ends at step 80" in like(every, stepped(range(0, 90, 10)))[1]


def test_each_host_has_all_steps_of_the_curve() -> None:
    steps = range(10)
    lopsided = [stepped(steps), stepped([0, 1, 2, 3, 9], host=1)]
    assert "the log on host 1 has only 5 of 10 steps" in like(steps, *lopsided)[1]
    short = [stepped(steps), stepped(range(5), host=1)]
    assert "the log on host 1 ends at step 4" in like(steps, *short)[1]


def test_the_last_step_of_a_log_too_long_to_keep_is_compared() -> None:
    kept, recorded = [*range(100), 300, 500], range(1000)

    def of(last: float, last_step: int = 999) -> tuple[str, str]:
        summary = {"count": last_step + 1, "kept": 102, "last": last, "last_line": 10_000, "last_step": last_step}
        return like(recorded, stepped(kept), values={"loss": {"0": summary}})

    assert of(0.01) == (
        "passed",
        "compared 103 of 1,000 steps of the recorded curve: all within 0.001; only some of the values were kept",
    )
    assert "first step 999: 7 (expected 0.01" in of(7.0)[1]
    assert of(7.0, 1200)[0] == "passed"  # it went on after the recorded one had ended
    assert "ends at step 700" in of(3.0, 700)[1]


def test_lines_without_steps_cannot_be_compared() -> None:
    note = values("loss", [5.0, 4.0])
    note["steps"] = [None, None]
    findings = check_loss(train(note), curve_within(1.0), CURVE)
    assert brief(findings)["loss curve"] == ("failed", "loss")


def test_the_finding_carries_the_curve_in_few_points() -> None:
    (finding,) = check_loss(train(values("loss", [float(n) for n in range(1001)])), PLAIN)
    assert 150 <= len(finding.data["curve"]) <= 200
    assert finding.data["curve"][1] == [6, 6.0]
