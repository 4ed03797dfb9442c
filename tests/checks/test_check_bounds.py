"""One run's metrics against bounds: each side has its verdict, and what cannot be judged says why."""

import msgspec
import pytest

from seatrial.checks import check_bounds
from seatrial.job import Bound, BoundState, Level, RecentRun, Settings, Verdict

OCTOBER, NOVEMBER = 1790985600.0, 1794441600.0  # 3 Oct and 12 Nov 2026
HERE = Settings({"command": "train", "hardware.cores": "8"}, {"workspace.ref": "v1"}, former="0dd0f00d")
BOUND = Bound(
    "step_time",
    2.4,
    2.49,
    "lower",
    "s",
    2.44,
    41,
    OCTOBER,
    0.001,
    fingerprint=HERE.fingerprint,
    conditions=HERE.conditions,
    under_test=HERE.under_test,
)


def judged(value: float | None, bound: Bound = BOUND, settings: Settings = HERE, **more: bool) -> tuple[str, str]:
    metrics = {} if value is None else {"step_time": {"value": value, "unit": "s", "better": "lower"}}
    (finding,) = check_bounds(metrics, [bound], settings, at_s=NOVEMBER, **more)
    return str(finding.verdict), finding.message


@pytest.mark.parametrize(
    ("value", "better", "verdict"),
    [
        (2.40, "lower", "passed"),
        (2.49, "lower", "passed"),
        (2.4900001, "lower", "slower"),
        (2.3999999, "lower", "faster"),
        (2.6, "higher", "faster"),
        (2.3, "higher", "slower"),
    ],
)
def test_each_side_has_its_verdict_and_equality_is_inside(value: float, better: str, verdict: str) -> None:
    bound = Bound("step_time", 2.4, 2.49, better)  # type: ignore[arg-type]
    (finding,) = check_bounds({"step_time": value}, [bound], Settings())
    assert finding.verdict == verdict


def test_what_the_trial_says_is_better_comes_before_what_a_baseline_says() -> None:
    metrics = {"x": {"value": 9.0, "better": "lower"}}
    (finding,) = check_bounds(metrics, [Bound("x", 1.0, 2.0, "higher")], Settings())
    assert finding.verdict is Verdict.SLOWER


def test_out_of_a_bound_of_which_no_side_is_better_is_a_failure() -> None:
    loss = Bound("loss", 0.4725, 0.4745, None)
    for value, verdict in ((0.47, "failed"), (0.4735, "passed"), (0.5, "failed")):
        assert check_bounds({"loss": value}, [loss], Settings())[0].verdict == verdict


def test_a_metric_just_outside_is_told_with_the_digits_that_it_takes() -> None:
    assert judged(2.60031, Bound("step_time", 2.0, 2.60004, unit="s"))[1] == "step_time: 2.6003 s is above 2.6 s"
    assert "78,347 is above 12,346" in judged(78347.4, Bound("step_time", 1, 12345.6))[1]


def test_the_sentence_tells_how_sure_it_is_and_since_when() -> None:
    changed = Bound(
        **{**{f: getattr(BOUND, f) for f in BOUND.__struct_fields__}, "changed": Level("8f3a", NOVEMBER, 2.44, 2.60)}
    )
    assert judged(2.61, changed)[1] == (
        "step_time: 2.61 s is above 2.49 s (41 runs since 3 Oct, 0.1 % false-alarm rate); "
        "the level changed at run 8f3a (2.44 → 2.6 s, 12 Nov)"
    )


def test_faster_asks_for_a_recenter() -> None:
    assert "`seatrial baseline recenter`" in judged(2.0)[1]


def test_what_is_under_test_is_judged_and_named() -> None:
    verdict, message = judged(2.6, settings=Settings(HERE.conditions, {"workspace.ref": "v2"}))
    assert verdict == "slower"
    assert message.endswith("; changed since then: workspace.ref v1 → v2")


def test_a_metric_of_other_conditions_is_not_judged_and_that_is_no_pass() -> None:
    other = Settings({"command": "train", "hardware.cores": "4"}, HERE.under_test)
    verdict, message = judged(2.44, settings=other)
    assert verdict == "invalid"
    assert "the bounds are for other conditions: hardware.cores 8 → 4" in message
    assert judged(2.44, settings=other, record=True)[0] == "skipped"


def test_bounds_of_an_older_seatrial_judge_what_they_were_made_for() -> None:
    assert judged(2.6, Bound("step_time", 2.4, 2.49, fingerprint="0dd0f00d"))[0] == "slower"
    verdict, message = judged(2.44, Bound("step_time", 2.4, 2.49, fingerprint="12345678"))
    assert verdict == "invalid"
    assert "only their fingerprint" in message


@pytest.mark.parametrize(
    ("state", "expected"),
    [(BoundState.RECORDING, "skipped"), (BoundState.UNUSABLE, "invalid"), (BoundState.DISABLED, "skipped")],
)
def test_a_bound_that_cannot_be_used_says_why(state: BoundState, expected: str) -> None:
    verdict, message = judged(9.9, Bound("step_time", 2.0, 3.0, state=state, why="only 3 runs"))
    assert verdict == expected
    assert "only 3 runs" in message


@pytest.mark.parametrize(
    ("value", "unit", "verdict"),
    [(2440.0, "ms", "passed"), (2500.0, "ms", "slower"), (0.0407, "min", "passed"), (2.44, "GiB", "invalid")],
)
def test_metrics_are_judged_in_the_unit_of_their_bounds(value: float, unit: str, verdict: str) -> None:
    metrics = {"step_time": {"value": value, "unit": unit, "better": "lower"}}
    (finding,) = check_bounds(metrics, [BOUND], HERE)
    assert finding.verdict == verdict
    assert verdict != "invalid" or "measured in GiB, bounds are in s" in finding.message


def test_a_metric_that_has_bounds_and_was_not_measured_is_a_failure() -> None:
    assert judged(None)[0] == "failed"
    assert judged(None, failed=True)[0] == "skipped"


def test_what_is_not_a_finite_number_was_not_measured() -> None:
    for value in (float("nan"), float("inf"), True, "2.4", None):
        (finding,) = check_bounds({"step_time": {"value": value}}, [BOUND], HERE)
        assert finding.verdict is Verdict.FAILED


def test_metrics_in_groups_have_dotted_names() -> None:
    (finding,) = check_bounds({"run x": {"seconds": {"value": 3.0}}}, [Bound("run x.seconds", 1.0, 2.0)], Settings())
    assert finding.verdict is Verdict.SLOWER


def test_a_baseline_without_an_entry_is_told() -> None:
    (finding,) = check_bounds({}, [], Settings(), unbounded="b.yaml does not exist yet")
    assert finding.verdict is Verdict.SKIPPED
    assert "b.yaml does not exist yet" in finding.message


def test_runs_within_bounds_that_add_up_are_slower_and_say_since_when() -> None:
    recent = tuple(RecentRun(f"run{n}", value) for n, value in enumerate([2.44, 2.43, 2.45, 2.48, 2.475, 2.48, 2.48]))
    (finding,) = check_bounds(
        {"step_time": 2.485}, [msgspec.structs.replace(BOUND, recent=recent)], HERE, at_s=NOVEMBER
    )
    assert finding.verdict is Verdict.SLOWER
    assert finding.message.startswith(
        "step_time has been 1.6 % above its baseline since run run3 (5 runs); this run alone: 2.485 s is wi"
    )
    assert finding.data["shift"]["run"] == "run3"
    # The same bounds written by hand say nothing about the noise of a run.
    by_hand = msgspec.structs.replace(BOUND, recent=recent, false_alarm=None)
    assert check_bounds({"step_time": 2.485}, [by_hand], HERE)[0].verdict is Verdict.PASSED
