"""Profiles that were opened, from the summaries that the agent makes of them."""

from statistics import median
from typing import Any

import pytest

from seatrial.job import ObservedStep, Outcome
from seatrial.kinds.training.profile import check_profile, check_profile_metric
from seatrial.suite.command import Files
from seatrial.suite.values import parse_requirement
from trained import brief, train, values

STEPS = [
    {"number": n, "seconds": s, "start_s": float(n)} for n, s in zip((3, 4, 5), (0.0196, 0.0237, 0.0191), strict=True)
]
LOG = values("step_time", [1.5, 0.02, 0.02, 0.0196, 0.0237, 0.0192])


def profile(**changed: Any) -> dict[str, Any]:
    return {
        "planes": [{"name": "/host:CPU", "lines": 3, "events": 2196}],
        "events": 2196,
        "errors": [],
        "unresolved": 0,
        "devices": {},
        "steps": STEPS,
        "step_source": "step annotations of the host",
        "ambiguous": [],
        **changed,
    }


def seen(*profiles: dict[str, Any]) -> ObservedStep:
    found = [{"path": f"p{n}.xplane.pb", "bytes": 9, "error": None, "profile": one} for n, one in enumerate(profiles)]
    return ObservedStep(
        "files", "files", outcome=Outcome.EXITED, result={"prof": {"count": len(found), "files": found}}
    )


def judged(
    *profiles: dict[str, Any], log: dict[str, Any] = LOG, log_unit: str = "s", **expected: Any
) -> dict[str, tuple[str, str]]:
    expected = {"agrees": 0.05, **expected}
    return brief(check_profile(seen(*profiles), train(log), "prof", Files.model_construct(**expected), log_unit))


def test_a_real_profile_passes_every_rule() -> None:
    assert set(judged(profile(), window=(3, 5), steps=parse_requirement(">=3")).values()) == {("passed", "")}


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"events": 0, "planes": []}, "profile"),  # the empty file, which every other reader takes for a profile
        ({"unresolved": 3}, "profile"),
        ({"errors": ["failed to trace"]}, "profile"),
        ({"steps": STEPS[:2]}, "steps"),
        ({"steps": []}, "steps"),
        ({"ambiguous": ["jit_a", "jit_b"]}, "steps"),
        ({"steps": [{**one, "number": one["number"] + 1} for one in STEPS]}, "window"),
        ({"steps": [{**one, "seconds": one["seconds"] * 1.2} for one in STEPS]}, "agrees"),
    ],
)
def test_each_broken_rule_is_the_finding_of_that_rule(changed: dict[str, Any], rule: str) -> None:
    found = judged(profile(**changed), window=(3, 5))
    assert found.pop(rule) == ("failed", "profile")
    if rule != "window":
        assert {verdict for verdict, _ in found.values()} <= {"passed", "skipped"}


def test_devices_are_of_the_asked_type_and_number_and_have_events() -> None:
    tpu = profile(devices={"TPU": {"count": 4, "events": 15_000}})
    assert judged(tpu, device="tpu", devices=parse_requirement(4))["device"] == ("passed", "")
    assert judged(tpu, device="TPU", devices=parse_requirement(8))["device"] == ("failed", "profile")
    assert judged(tpu, device="GPU")["device"] == ("failed", "profile")
    assert judged(profile(), device="TPU")["device"] == ("failed", "profile")
    idle = profile(devices={"TPU": {"count": 4, "events": 0}})
    assert judged(idle, device="TPU")["device"] == ("failed", "profile")


def test_a_profile_is_compared_with_the_log_by_the_same_steps() -> None:
    """Only the steps that both number: a log that is slow elsewhere says nothing of these."""
    log = values("step_time", [1.5, 9.0, 9.0, 0.0196, 0.0237, 0.0191, 9.0, 9.0, 9.0, 9.0])
    assert judged(profile(), log=log)["agrees"] == ("passed", "")
    assert judged(profile(), log={**log, "steps": [None] * 10})["agrees"] == ("failed", "profile")
    milliseconds = {**LOG, "values": [value * 1000 for value in LOG["values"]]}
    assert judged(profile(), log=milliseconds, log_unit="ms")["agrees"] == ("passed", "")
    assert judged(profile(), log=milliseconds)["agrees"] == ("failed", "profile")


def test_step_times_are_compared_only_where_it_is_asked_for() -> None:
    off = profile(steps=[{**one, "seconds": one["seconds"] * 2} for one in STEPS])
    assert "agrees" not in brief(check_profile(seen(off), train(LOG), "prof", Files.model_construct(), "s"))
    assert judged(off, agrees=0.05)["agrees"] == ("failed", "profile")


def test_what_cannot_be_compared_is_skipped_with_its_reason() -> None:
    found = check_profile(seen(profile()), train(), "prof", Files.model_construct(window=(0, 9), agrees=0.05), "s")
    assert {one.check: one.message for one in found if str(one.verdict) == "skipped"} == {
        "agrees": "not checked: the log reports no step times"
    }
    unnumbered = profile(steps=[{"number": None, "seconds": 0.02}] * 3)
    assert judged(unnumbered, window=(0, 9))["window"] == ("skipped", "")


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "passed"), (1.04, "passed"), (1.2, "failed"), (0.0, "failed")])
def test_a_step_time_in_a_file_is_compared_with_the_profile(factor: float, verdict: str) -> None:
    seconds = median(one["seconds"] for one in STEPS) * factor
    (finding,) = check_profile_metric(seen(profile()), "prof", 0.05, "step_time", seconds, "train_metrics.json")
    assert (str(finding.verdict), finding.check) == (verdict, "agrees step_time")
    assert "by step_time (train_metrics.json)" in finding.message
    assert check_profile_metric(seen(), "prof", 0.05, "step_time", seconds, "train_metrics.json") == []


def test_one_bad_profile_among_several_hosts_is_named() -> None:
    found = check_profile(seen(profile(), profile(events=0)), train(LOG), "prof", Files.model_construct(), "s")
    assert next(one.message for one in found if one.check == "profile") == "p1.xplane.pb has no events (1 planes)"


def test_a_summary_of_nonsense_is_a_finding_and_no_crash() -> None:
    nonsense = {"events": "many", "steps": {"a": 1}, "devices": [1], "planes": 3, "errors": 7, "ambiguous": 1}
    assert judged(nonsense, device="TPU", window=(0, 1)) == {
        "profile": ("failed", "profile"),
        "steps": ("failed", "profile"),
        "device": ("failed", "profile"),
        "window": ("skipped", ""),
        "agrees": ("skipped", ""),
    }
    assert check_profile(seen(), train(), "prof", Files.model_construct(), "s") == []


def test_each_hosts_profile_is_compared_with_its_own_log() -> None:
    def of(factor: float) -> dict[str, Any]:
        return profile(steps=[{**one, "seconds": one["seconds"] * factor} for one in STEPS])

    logs = [
        values("step_time", [one * (1 + host) for one in (1.5, 0.02, 0.02, 0.0196, 0.0237, 0.0192)], host)
        for host in (0, 1)
    ]
    for profiles, verdict in (([of(1), of(2)], "passed"), ([of(2), of(1)], "failed")):
        files = [
            {"path": f"profile/0-{host}/h.xplane.pb", "bytes": 9, "error": None, "profile": one}
            for host, one in enumerate(profiles)
        ]
        found = ObservedStep("files", "read", outcome=Outcome.EXITED, result={"prof": {"count": 2, "files": files}})
        findings = brief(check_profile(found, train(*logs), "prof", Files.model_construct(agrees=0.05), "s"))
        assert findings["agrees"][0] == verdict


def test_a_profile_of_nobody_in_particular_agrees_with_the_host_it_is_of() -> None:
    logs = [values("step_time", [one * 2 for one in (1.5, 0.02, 0.02, 0.0196, 0.0237, 0.0192)], 0)]
    logs.append(values("step_time", [1.5, 0.02, 0.02, 0.0196, 0.0237, 0.0192], 1))
    findings = brief(check_profile(seen(profile()), train(*logs), "prof", Files.model_construct(agrees=0.05), "s"))
    assert findings["agrees"][0] == "passed"
