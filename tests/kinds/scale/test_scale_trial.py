"""What a scale trial may say, the manifests that it makes, and what it is judged by."""

from typing import Any

import msgspec
import pytest

from seatrial.job import IN_SHORT, Exit, ObservedStep, Outcome, Series, Table, Tile, Verdict
from seatrial.kinds.scale.judge import check_scale
from seatrial.kinds.scale.model import ScaleTrial, Workload, parse_scale_bound
from seatrial.kinds.scale.work import (
    FoundLimit,
    ScaleSummary,
    StageMetrics,
    StageQuantile,
    TriedRate,
    broken_scale_bounds,
    falls_behind,
)
from seatrial.kinds.scale.workload import manifests_of
from seatrial.kinds.search import Flow
from seatrial.suite import SuiteError
from world import World

SUITE = """
name: s
targets: {{cluster: {{kind: kubernetes}}}}
trials:
  t:
    kind: scale
    {fields}
"""
FINE = (
    "target: cluster\n    workload: {kind: job}\n    count: 10\n    arrivals: {rate: 5/s}\n"
    "    bounds: {scheduled.p99: 30s}"
)


def test_a_plan_has_its_cells(world: World) -> None:
    world.suite(SUITE.format(fields=FINE + "\n    matrix: {size: [1, 2]}"))
    assert "2 cells" in world.seatrial("plan", "suite.yaml", check=0).stdout


def test_a_target_that_cannot_be_used_is_named(world: World) -> None:
    world.suite(SUITE.format(fields=FINE).replace("{kind: kubernetes}", "{kind: kubernetes, kubeconfig: nowhere}"))
    told = world.seatrial("run", "suite.yaml", check=2).stderr
    assert "t needs target cluster: cannot use the cluster: nowhere: kubeconfig not found" in told
    assert "target here" not in told


def test_a_driver_on_the_cluster_has_a_core_of_its_own_unless_another_number_is_said() -> None:
    """Without, a busy node would be what it measures, if it came to measure at all."""
    fields = {"target": "c", "workload": {"kind": "job"}, "count": 1, "arrivals": {"rate": 1}}
    for said, cpu in (({}, 1), ({"cpu": 0.5}, 0.5)):
        trial = ScaleTrial.model_validate({"kind": "scale", **fields, "driver": {"image": "i", **said}})
        assert trial.driver is not None
        assert trial.driver.cpu == cpu


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("target: cluster", "tags: [a]", "`target` is required"),
        ("{kind: job}", "{}", "exactly one of `kind` (built in) and `template`"),
        ("{kind: job}", "{template: no.yaml}", "no.yaml"),
        ("{rate: 5/s}", "{rate: 5/s, burst: 3}", "exactly one of"),
        ("{rate: 5/s}", "{rate: fast}", "invalid rate 'fast'"),
        ("{rate: 5/s}", "{steps: [1/s, 2/s]}", "`steps` needs `every`"),
        ("{rate: 5/s}", "{in_flight: 3, delay: 1s}", "`delay` applies only to `waves`"),
        ("{rate: 5/s}", "{burst: 5}\n    find: limit", "needs `arrivals` with a `rate` or `poisson`"),
        (
            "count: 10",
            "count: 200\n    find: limit\n    churn: {rate: 1/s, for: 1s}",
            "cannot be combined with `churn`",
        ),
        ("count: 10", "count: 129\n    find: limit", "needs a `count` of at least 130"),
        ("    bounds: {scheduled.p99: 30s}", "    find: limit", "needs `bounds` or `slo`"),
        (
            "workload: {kind: job}",
            "workload: {kind: job}\n    workloads: {a: {kind: job}}",
            "exactly one of `workload` and",
        ),
        ("workload: {kind: job}", "workloads: {failed: {kind: job}}", "invalid class name 'failed'"),
        ("{kind: job}", "{kind: job, gpus: 1.5}", "invalid `gpus` 1.5"),
        ("target: cluster", "target: cluster\n    namespaces: [a, a]", "duplicate namespace 'a'"),
        ("target: cluster", "target: cluster\n    namespaces: [Team_A]", "invalid namespace 'Team_A'"),
        (
            "target: cluster",
            "target: cluster\n    until: finished\n    churn: {rate: 1/s, for: 9s}",
            "`churn` cannot be combined with `until: finished`",
        ),
        ("scheduled.p99: 30s", "gang.scheduled.p99: 30s", "unknown metric 'gang.scheduled.p99'"),
        ("scheduled.p99: 30s", "sheduled.p99: 30s", "unknown metric 'sheduled.p99' of a scale trial"),
        (
            "{kind: job}",
            "{kind: job}\n    follow: [{apiVersion: v1, kind: X, stages: [{stage: went}]}]",
            "unknown stage 'went'; known: created",
        ),
        (
            "{kind: job}",
            "{kind: job}\n    follow: [{apiVersion: v1, kind: X, stages: [{stage: admitted, path: a..b}]}]",
            "invalid path 'a..b'",
        ),
        ("{kind: job}", "{kind: kueue, queue: q}", "with `kind: kueue` use `until: admitted`"),
        ("{kind: job}", "{kind: job}\n    until: admitted", "`until: admitted` needs a Kueue `queue`"),
        (
            "{kind: job}",
            "{kind: job}\n    audit_log: a\n    driver: {image: i}",
            "`audit_log` cannot be combined with `driver`",
        ),
        (
            "{kind: job}",
            "{kind: job}\n    churn: {rate: 1/s, age: 5s, for: 1m}",
            "set exactly one of `rate`, `share`, `namespaces` and `age`",
        ),
        ("{kind: job}", "{kind: job}\n    churn: {share: 10%, for: 1m}", "`share` and `namespaces` need `every`"),
        ("{kind: job}", "{kind: job}\n    churn: {age: 5s, every: 1s, for: 1m}", "need `every`, and nothing else"),
        (
            "{kind: job}",
            "{kind: job}\n    follow: {selector: a=b, for: 1m}",
            "`follow` as a map cannot be combined with `arrivals`",
        ),
        ("scheduled.p99: 30s", "scheduled: 30s", "invalid metric 'scheduled'; use scheduled.p50"),
        ("scheduled.p99: 30s", "scheduled.p99: quick", "a duration such as 500ms or 30s"),
    ],
)
def test_what_is_wrong_is_told_before_anything_starts(world: World, old: str, new: str, message: str) -> None:
    assert old in FINE
    world.suite(SUITE.format(fields=FINE.replace(old, new)))
    told = world.seatrial("plan", "suite.yaml", check=2)
    assert message in told.stdout + told.stderr
    assert "suite.yaml:" in told.stdout + told.stderr


FOLLOWS = "target: here\n    follow: {selector: a=b, for: 1m}\n"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("until: created", "`created` is not measured of workloads that others create"),
        ("bounds: {created.p99: 1s}", "`created` is not measured of workloads that others create"),
        ("slo: kubernetes", "cannot be combined with `slo`"),
        ("workload: {kind: job}", "cannot be combined with `workload`"),
        ("follow2: 1", "follow2"),
    ],
)
def test_a_trial_that_only_follows_creates_nothing(world: World, more: str, message: str) -> None:
    world.suite(SUITE.format(fields=FOLLOWS + f"    {more}\n"))
    told = world.seatrial("plan", "suite.yaml", check=2)
    assert message in told.stdout + told.stderr
    world.suite(SUITE.format(fields=FOLLOWS))
    world.seatrial("plan", "suite.yaml", check=0)


def test_workloads_need_a_number_and_arrivals(world: World) -> None:
    world.suite(SUITE.format(fields="target: here\n    workload: {kind: job}\n"))
    told = world.seatrial("plan", "suite.yaml", check=2)
    assert "`count` and `arrivals` are required" in told.stdout + told.stderr


def test_a_job_of_several_pods_is_indexed_and_asks_for_its_gpus() -> None:
    (made,) = manifests_of(Workload(kind="job", pods=8, gpus=2, select={"pool": "a"}), "")
    assert made["spec"]["completionMode"] == "Indexed"
    assert made["spec"]["parallelism"] == made["spec"]["completions"] == 8
    spec = made["spec"]["template"]["spec"]
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert spec["nodeSelector"] == {"pool": "a"}


def test_the_values_of_a_template_are_put_in_the_longest_first() -> None:
    template = "apiVersion: v1\nkind: ConfigMap\ndata: {gpus: 'NUM_GPUS', all: 'NUM_GPUS_ALL'}\n"
    (made,) = manifests_of(Workload(template="t", values={"NUM_GPUS": 1, "NUM_GPUS_ALL": 9}), template)
    assert made["data"] == {"gpus": "1", "all": "9"}


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a: [", "invalid YAML"),
        ("apiVersion: v1\nkind: Pod\n---\napiVersion: v1\nkind: Pod\n", "two objects are Pod JOB_NAME_PLACEHOLDER"),
        ("apiVersion: v1\nkind: Pod\n---\n- a\n", "found 2 YAML documents"),
        ("", "found 0 YAML documents"),
        ("apiVersion: v1\nkind: Pod\n---\nkind: Service\n", "missing apiVersion"),
        (
            "apiVersion: v1\nkind: Pod\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n",
            "the name of Service web must contain JOB_NAME_PLACEHOLDER",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {namespace: a}\n---\n"
            "apiVersion: v1\nkind: Service\nmetadata: {namespace: b}\n",
            "must be in one namespace, found a, b",
        ),
        ("kind: Pod\n", "missing apiVersion"),
        ("- a\n", "found 1 YAML documents"),
    ],
)
def test_a_template_that_is_no_workload_is_refused(template: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        manifests_of(Workload(template="t"), template)
    with pytest.raises(SuiteError, match="'NO_SUCH' of `values` not found"):
        manifests_of(Workload(template="t", values={"NO_SUCH": 1}), "apiVersion: v1\nkind: Pod\n")


def test_what_is_wrong_in_a_file_is_told_with_its_place_before_a_run_begins(world: World) -> None:
    world.suite(SUITE.format(fields=FINE.replace("{kind: job}", "{template: t.yaml}")))
    (world.folder / "t.yaml").write_text("apiVersion: v1\nkind: [Pod\n")
    told = world.seatrial("run", "suite.yaml", check=2)
    assert "t.yaml:3:1: invalid YAML" in told.stderr
    (world.folder / "trace").write_text("0.5\nsoon\n")
    world.suite(SUITE.format(fields=FINE.replace("{rate: 5/s}", "{trace: trace}")))
    told = world.seatrial("run", "suite.yaml", check=2)
    assert "trace:2:1: invalid time 'soon'" in told.stderr
    assert not list(world.folder.glob("runs/*/plan.json"))


WHOLE = ScaleSummary(100, 100, 0, 0, 0, [], 20.0, 20.0, 0.001, 0.001, 0.004, 50, False, False)


def observed(
    whole: ScaleSummary | None = WHOLE,
    p99: float | None = 2.0,
    upper: float | None = 2.2,
    left: bool = False,
    problem: str = "",
    lag_s: float = 0.004,
    **step: Any,
) -> ObservedStep:
    quantile = StageQuantile(0.99, p99, 1.9, upper)
    stage = StageMetrics("scheduled", 100, 100, 0, 0, [quantile], [], "watch", lag_s)
    clean = {"note": "clean", "left": left, "seconds": 1.0, "problem": problem}
    notes = [{"note": "stage", **msgspec.to_builtins(stage)}, clean]
    if whole is not None:
        notes.append({"note": "whole", **msgspec.to_builtins(whole)})
    return ObservedStep("driver", "drive", outcome=Outcome.EXITED, notes=notes, **{"code": 0, **step})


def verdicts(step: ObservedStep, **bounds: Any) -> dict[str, Verdict]:
    parsed = tuple(parse_scale_bound(name.replace("_", "."), value) for name, value in bounds.items())
    scaled = check_scale(step, Exit(Outcome.EXITED, 0), parsed)
    return {finding.check: finding.verdict for finding in scaled.findings}


def test_the_first_screen_has_rates_quantiles_and_bounds() -> None:
    bounds = (parse_scale_bound("scheduled.p99", "1s"), parse_scale_bound("failed", "0"))
    charts = check_scale(observed(), Exit(Outcome.EXITED, 0), bounds).charts
    tiles = {(one.group, one.title): one for one in charts if isinstance(one, Tile)}
    assert (tiles["", "achieved"].value, tiles["", "achieved"].unit) == (WHOLE.rate, "/s")
    late = tiles["scheduled", "p99"]
    assert (late.value, late.bound, late.limit, late.verdict) == (2.0, "<= 1s", 1.0, Verdict.FAILED)
    assert (tiles["", "failed"].bound, tiles["", "failed"].verdict) == ("<= 0", Verdict.PASSED)
    assert tiles["", "sent late, p99"].value == WHOLE.late_p99_s
    assert tiles["", "sent late, p99"].note == "watch 4 ms late"


def test_its_stages_are_shown_with_what_is_not_known_of_them() -> None:
    charts = check_scale(observed(), Exit(Outcome.EXITED, 0), ()).charts
    distribution, curve, measured, intervals = (one for one in charts if not isinstance(one, Tile))
    assert curve.first
    assert dict(zip(distribution.columns, distribution.rows[0], strict=True)) == {
        "stage": "scheduled", "p99": 2.0, "count": 100, "reached": 100, "unfinished": 0, "censored": 0,
        "failed": 0, "source": "watch", "resolution": 0.004,
    }  # fmt: skip
    assert (type(curve), curve.rows) == (Series, [])
    assert ["rate sent", 20.0, "1/s"] in measured.rows
    assert intervals.rows == [["scheduled", "p99", 2.0, 1.9, 2.2]]
    mixed = msgspec.structs.replace(WHOLE, mix={"gang": 2, "single": 98}, deleted=5, waited_s=1.5)
    charts = check_scale(observed(mixed), Exit(Outcome.EXITED, 0), ()).charts
    (measured,) = [one for one in charts if one.title == "How it was measured"]
    assert ["gang workloads created", 2, ""] in measured.rows
    assert ["total wait before retries", 1.5, "s"] in measured.rows


def test_times_between_stages_are_shown_for_neighbours_and_judged_where_a_bound_is() -> None:
    def stage(name: str, value: float, of: str = "") -> dict[str, Any]:
        made = StageMetrics(name, 9, 9, 0, 0, [StageQuantile(0.99, value, value, value)], [], "watch", 0.01, of=of)
        return {"note": "stage", **msgspec.to_builtins(made)}

    late = msgspec.structs.replace(WHOLE, late_p99_s=5.0)
    step = observed(late)
    names = ("created..scheduled", "created..started", "scheduled..started", "created", "scheduled", "started")
    step.notes[:1] = [stage(name, float(at), of) for of in ("", "gang") for at, name in enumerate(names)]
    bounds = (parse_scale_bound("created..started.p99", "2s"), parse_scale_bound("gang.scheduled.p99", "9s", ["gang"]))
    scaled = check_scale(step, Exit(Outcome.EXITED, 0), bounds)
    (found,) = [one for one in scaled.findings if one.check == "bound created..started.p99"]
    assert found.verdict is Verdict.PASSED, "late sends do not matter for it"
    (between,) = [one for one in scaled.charts if one.title == "Time between stages"]
    neighbours = ["created..scheduled", "created..started", "scheduled..started"]
    assert [row[0] for row in between.rows] == [*neighbours, "gang.created..scheduled", "gang.scheduled..started"]
    assert [name for name in scaled.metrics if ".." in name] == ["created..started"]
    assert parse_scale_bound("gang.created..ready.p50", "5s", ["gang"]).metric == "gang.created..ready"
    for wrong in ("scheduled..created.p99", "created..evicted.p99", "created..scheduled", "gang.created..ready.p50"):
        with pytest.raises(ValueError, match="metric"):
            parse_scale_bound(wrong, "5s")


def test_bounds_pass_and_fail() -> None:
    assert verdicts(observed(), scheduled_p99="30s")["bound scheduled.p99"] is Verdict.PASSED
    assert verdicts(observed(), scheduled_p99="1s")["bound scheduled.p99"] is Verdict.FAILED
    assert verdicts(observed(), rate=">=19")["bound rate"] is Verdict.PASSED
    assert verdicts(observed(), rate=">=21")["bound rate"] is Verdict.FAILED
    bad = msgspec.structs.replace(WHOLE, failed=1)
    assert verdicts(observed(bad), failed=0)["bound failed"] is Verdict.FAILED


def test_the_metrics_that_matter_are_told_in_short() -> None:
    def told(step: ObservedStep, *bounds: str) -> str:
        parsed = tuple(parse_scale_bound(name, "30s") for name in bounds)
        findings = check_scale(step, Exit(Outcome.EXITED, 0), parsed).findings
        (message,) = [one.message for one in findings if one.check == IN_SHORT]
        return message

    whole = "100 of 100 workloads created at 20/s"
    assert told(observed(), "scheduled.p99") == f"{whole}; scheduled p99 2 s; watch lag p99 4 ms"
    assert told(observed()) == told(observed(), "scheduled.p99"), "without a bound the last stage is told"
    assert "; scheduled p99 above 1.9 s; " in told(observed(p99=None))
    few = msgspec.structs.replace(WHOLE, submitted=99, rate=None)
    assert told(observed(few)).startswith("99 of 100 workloads created; scheduled p99 2 s (n 100); ")


@pytest.mark.parametrize(("upper", "text"), [(2.2, "between 1.9 s and 2.2 s"), (None, "above 1.9 s")])
def test_a_bound_is_told_with_the_interval_of_its_metric(upper: float | None, text: str) -> None:
    bounds = (parse_scale_bound("scheduled.p99", "30s"),)
    findings = check_scale(observed(upper=upper), Exit(Outcome.EXITED, 0), bounds).findings
    (message,) = [one.message for one in findings if one.check == "bound scheduled.p99"]
    assert f"2 s (expected <= 30s), 95 % {text} (100 of 100 workloads" in message


def test_a_quantile_that_is_not_known_and_a_stage_that_none_came_to_fail_their_bounds() -> None:
    assert verdicts(observed(p99=None), scheduled_p99="30s")["bound scheduled.p99"] is Verdict.FAILED
    assert verdicts(observed(), ready_p99="30s")["bound ready.p99"] is Verdict.FAILED


@pytest.mark.parametrize("change", [{"again": True}, {"stopped": True}])
def test_a_broken_open_loop_is_invalid_and_no_time_is_checked(change: dict[str, Any]) -> None:
    found = verdicts(observed(msgspec.structs.replace(WHOLE, **change)), scheduled_p99="1s")
    assert found["measurement"] is Verdict.INVALID
    assert found["bound scheduled.p99"] is Verdict.SKIPPED


@pytest.mark.parametrize(
    ("late_s", "lag_s", "bound", "verdict"),
    [
        (0.0, 0.1, "1s", Verdict.FAILED),  # 2 s, whatever the lag
        (0.9, 0.0, "1s", Verdict.FAILED),
        (0.5, 0.6, "1s", Verdict.INVALID),
        (0.0, 0.5, "30s", Verdict.PASSED),
        (0.0, 29.0, "30s", Verdict.INVALID),
        (0.0, 0.1, "1.95s", Verdict.INVALID),
        (0.0, 0.1, "2.05s", Verdict.INVALID),
    ],
)
def test_a_bound_is_decided_if_the_error_of_its_own_time_allows_it(
    late_s: float, lag_s: float, bound: str, verdict: Verdict
) -> None:
    whole = msgspec.structs.replace(WHOLE, late_p99_s=late_s, lag_p99_s=lag_s)
    found = verdicts(observed(whole, lag_s=lag_s), scheduled_p99=bound)
    assert found["bound scheduled.p99"] is verdict
    assert found["measurement"] is Verdict.PASSED


def test_only_the_bound_that_is_too_close_is_invalid_and_says_why() -> None:
    whole = msgspec.structs.replace(WHOLE, lag_p99_s=0.092)
    step = observed(whole, lag_s=0.092)
    created = StageMetrics("created", 100, 100, 0, 0, [StageQuantile(0.99, 0.1, 0.1, 0.1)], [], "acknowledged", 0.0)
    step.notes.insert(0, {"note": "stage", **msgspec.to_builtins(created)})
    bounds = (parse_scale_bound("created.p99", "0.15s"), parse_scale_bound("scheduled.p99", "2.05s"))
    findings = {one.check: one for one in check_scale(step, Exit(Outcome.EXITED, 0), bounds).findings}
    assert findings["bound created.p99"].verdict is Verdict.PASSED
    unsure = findings["bound scheduled.p99"]
    assert unsure.verdict is Verdict.INVALID
    assert (
        "scheduled.p99: 2 s (expected <= 2.05s) is too close to call: "
        "error ± 93 ms (send delay p99 1 ms, watch lag 92 ms)" in unsure.message
    )


@pytest.mark.parametrize(
    ("bound", "verdict"), [("0.1s", Verdict.FAILED), ("1s", Verdict.INVALID), ("3s", Verdict.PASSED)]
)
def test_a_time_in_a_gap_of_the_watch_is_a_range_and_bounds_outside_of_it_are_decided(
    bound: str, verdict: Verdict
) -> None:
    whole = msgspec.structs.replace(WHOLE, unreachable_s=5.2)
    step = observed(whole)
    stage = StageMetrics("scheduled", 100, 100, 0, 7, [StageQuantile(0.99, 2.0, 1.9, 2.2, 0.2)], [], "watch", 0.0)
    step.notes[0] = {"note": "stage", **msgspec.to_builtins(stage)}
    parsed = parse_scale_bound("scheduled.p99", bound)
    scaled = check_scale(step, Exit(Outcome.EXITED, 0), (parsed,))
    (found,) = [one for one in scaled.findings if one.check == "bound scheduled.p99"]
    assert found.verdict is verdict
    assert (broken_scale_bounds((parsed,), whole, [stage], exact=False)[1] != []) == (verdict is Verdict.INVALID)
    if verdict is Verdict.INVALID:
        assert (
            "7 of 100 times are inexact because the watch was interrupted, so it may be as low as 0.2 s"
            in found.message
        )
        assert found.message.endswith("API server unreachable for 5.2 s; run it again")


def test_without_a_measured_lag_only_times_of_the_watch_are_not_decided() -> None:
    blind = msgspec.structs.replace(WHOLE, lags=0)
    found = verdicts(observed(blind), scheduled_p99="30s", rate=">=19")
    assert (found["bound scheduled.p99"], found["bound rate"]) == (Verdict.INVALID, Verdict.PASSED)


@pytest.mark.parametrize("change", [{"late_p99_s": 0.5}, {"lags": 0}])
def test_without_bounds_times_with_a_large_error_are_invalid(change: dict[str, Any]) -> None:
    assert verdicts(observed(msgspec.structs.replace(WHOLE, **change)))["measurement"] is Verdict.INVALID
    assert verdicts(observed(msgspec.structs.replace(WHOLE, late_p99_s=0.1)))["measurement"] is Verdict.PASSED


def test_a_driver_that_reported_nothing_or_left_something_never_passes() -> None:
    assert verdicts(observed(None))["records"] is Verdict.INFRA
    assert verdicts(observed(left=True))["clean-up"] is Verdict.INFRA
    refused = check_scale(
        observed(left=True, problem="the right to deletecollection is missing"), Exit(Outcome.EXITED, 0), ()
    )
    assert "not all deleted: the right to deletecollection is missing" in refused.findings[-1].message
    failed = observed(None, code=1, output="the server rejected the Job\n")
    assert verdicts(failed)["driver"] is Verdict.FAILED
    failed.notes.append({"note": "refused"})
    assert verdicts(failed)["driver"] is Verdict.INVALID
    failed.notes.append({"note": "unusable"})
    assert verdicts(failed)["driver"] is Verdict.INFRA
    garbage = ObservedStep("driver", "drive", outcome=Outcome.EXITED, code=0, notes=[{"note": "whole", "count": "x"}])
    assert verdicts(garbage)["records"] is Verdict.INFRA


def test_fill_that_ended_before_the_measurement_fails() -> None:
    assert verdicts(observed(msgspec.structs.replace(WHOLE, fill_ended=2)))["fill"] is Verdict.FAILED
    assert "fill" not in verdicts(observed())


def test_churn_that_could_not_delete_fails() -> None:
    churned = msgspec.structs.replace(WHOLE, deleted=5)
    assert verdicts(observed(churned))["churn"] is Verdict.PASSED
    assert verdicts(observed(msgspec.structs.replace(churned, not_deleted=1)))["churn"] is Verdict.FAILED
    assert "churn" not in verdicts(observed())


def limit(low: float, high: float, doubt: str = "") -> dict[str, Any]:
    tried = [TriedRate(10.0, 9.9, [], ""), TriedRate(20.0, 19.9, ["scheduled.p99 is 9, bound 1s"], "")]
    return {"note": "limit", **msgspec.to_builtins(FoundLimit(tried, low, high, doubt))}


def test_a_limit_is_reported_with_both_ends_and_its_bounds_are_not_judged_again() -> None:
    step = observed()
    step.notes.append(limit(10.0, 20.0))
    scaled = check_scale(step, Exit(Outcome.EXITED, 0), (parse_scale_bound("scheduled.p99", "1s"),))
    found = {finding.check: finding for finding in scaled.findings}
    assert found["limit"].message == "10/s keeps the bounds, 20/s does not"
    assert "bound scheduled.p99" not in found
    assert scaled.metrics["limit"] == {"value": 10.0, "unit": "1/s", "better": "higher"}
    tried = next(one for one in scaled.charts if isinstance(one, Table))
    assert tried.first
    assert tried.rows[1] == [20.0, 19.9, "scheduled.p99 is 9, bound 1s", ""]
    step.notes[-1] = limit(0.0, 10.0)
    assert verdicts(step)["limit"] is Verdict.FAILED


@pytest.mark.parametrize(
    ("low", "high", "doubt", "text"),
    [
        (0.0, 0.0, "at 10/s, no watch lag was measured", "no limit found: at 10/s, no watch lag was measured"),
        (10.0, 0.0, "at 20/s, late", "no limit found: at 20/s, late; 10/s keeps the bounds"),
        (10.0, 40.0, "at 20/s, late", "no limit found: at 20/s, late; 10/s keeps the bounds; 40/s does not"),
        (20.0, 0.0, "", "no limit found: 20/s keeps the bounds, and it is the highest rate allowed (`most`)"),
    ],
)
def test_a_search_without_both_ends_is_invalid_and_has_no_metric(
    low: float, high: float, doubt: str, text: str
) -> None:
    step = observed()
    step.notes.append(limit(low, high, doubt))
    scaled = check_scale(step, Exit(Outcome.EXITED, 0), (parse_scale_bound("scheduled.p99", "1s"),))
    (found,) = [one for one in scaled.findings if one.check == "limit"]
    assert (found.verdict, found.message) == (Verdict.INVALID, text)
    assert "limit" not in scaled.metrics


DONE = StageMetrics("scheduled", 500, 500, 0, 0, [], [], "watch", 0.1)


@pytest.mark.parametrize(
    ("flow", "late_s", "longer", "behind", "doubt"),
    [
        (Flow(400, 400, 0.0, 1.0), 0.0, False, "", ""),
        (Flow(400, 300, 90.0, 1.0), 0.0, False, "the cluster falls behind: 75.0% done, in flight +90", ""),
        (Flow(400, 390, 5.5, 1.0), 0.0, True, "", "seems to fall behind (limited by the watch (lag 0.1 s))"),
        (Flow(400, 360, 40.0, 1.0), 1.0, True, "", "limited by the load generator (send delay p99 1 s)"),
        (Flow(400, 400, 0.0, 1.0), 1.0, True, "", "limited by the load generator (send delay p99 1 s)"),
        (Flow(400, 399, 11.0, 10.0), 0.0, False, "", "not clear whether the cluster keeps up"),
        (Flow(400, 399, 11.0, 10.0), 0.0, True, "", ""),
        (None, 0.0, True, "", "raise `count`"),
    ],
)
def test_a_rate_breaks_if_workloads_pile_up_more_than_late_sends_and_lag_explain(
    flow: Flow | None, late_s: float, longer: bool, behind: str, doubt: str
) -> None:
    whole = msgspec.structs.replace(WHOLE, late_p99_s=late_s, lags=10)
    found = falls_behind(flow, whole, DONE, 50.0, longer)
    assert found[0] == behind
    assert bool(found[1]) is bool(doubt)
    assert doubt in found[1]


def test_the_objectives_of_kubernetes_are_bounds_and_say_what_they_are_worth() -> None:
    model = ScaleTrial(
        target="c",
        workload={"kind": "pod"},
        count=1,
        arrivals={"rate": 1},
        slo="kubernetes",
        bounds={"created.p99": "2s"},
    )  # type: ignore[arg-type]
    assert {bound.name: bound.value for bound in model.scale_bounds()} == {
        "failed": 0.0, "unfinished": 0.0, "created.p99": 2.0, "started.p99": 5.0,
    }  # fmt: skip
    few, many = (msgspec.structs.replace(WHOLE, offered_rate=rate) for rate in (20.0, 20.5))
    messages = [
        finding.message
        for whole in (few, many)
        for finding in check_scale(observed(whole), Exit(Outcome.EXITED, 0), (), "kubernetes").findings
        if finding.check == "slo"
    ]
    assert "apply up to 20" in messages[0]
    assert "above the 20" in messages[1]
