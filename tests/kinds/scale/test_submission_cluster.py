"""Mixes, projects, fill, background, churn and closed loops on a real API server; what is left is counted in all
namespaces."""

import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from cluster.fixtures import cluster
from kinds.scale.scale_world import WITHIN_S, ScaleWorld, wait_for
from seatrial.job import Verdict
from targets.kubernetes.on_cluster import EVERYTHING, RESTRICTED, namespace_of

__all__ = ["cluster"]
pytestmark = pytest.mark.timeout(1200)
MIX = {
    "single": {"kind": "job", "gpus": 1, "weight": 4},
    "gang": {"kind": "job", "pods": 4, "gpus": 1, "priority": "system-cluster-critical"},
    "part": {"kind": "pod", "gpus": 0.5},
}


def everywhere(scale: ScaleWorld) -> list[str]:
    """All of this run in any namespace: other tests use the cluster too."""
    labels = f"app.kubernetes.io/managed-by=seatrial,seatrial/run={scale.run().path.name}"
    return scale.cluster.kubectl("get", EVERYTHING, "-A", "-l", labels, "-o", "name").stdout.split()


def nothing_left(scale: ScaleWorld) -> None:
    assert scale.left() == []
    wait_for(lambda: not everywhere(scale))


@contextlib.contextmanager
def projects(scale: ScaleWorld, count: int) -> Iterator[list[str]]:
    with contextlib.ExitStack() as opened:
        yield [opened.enter_context(namespace_of(scale.cluster)) for _ in range(count)]


def test_a_mix_in_several_projects_is_made_followed_and_removed(scale: ScaleWorld) -> None:
    bounds = {"scheduled.p99": "10m", "gang.scheduled.p99": "10m"}
    with projects(scale, 2) as namespaces:
        scale.trial(workloads=MIX, namespaces=namespaces, count=24, bounds=bounds, seed=1)
        scale.seatrial("run", "suite.yaml", check=0)
        made = scale.submissions()
        assert Counter(one["namespace"] for one in made) == dict.fromkeys(namespaces, 12)
        assert set(Counter(one["of"] for one in made)) == set(MIX)
        findings = scale.findings()
        gangs = sum(one["of"] == "gang" for one in made)
        assert "24 of 24 workloads" in findings["bound scheduled.p99"].message
        assert f"{gangs} of {gangs} workloads" in findings["bound gang.scheduled.p99"].message
        assert scale.results().cells[0].metrics["gang.scheduled"]["p50"]["value"] > 0
        nothing_left(scale)


def test_of_a_run_that_was_killed_all_namespaces_are_reaped(scale: ScaleWorld) -> None:
    with projects(scale, 2) as namespaces:
        scale.trial(namespaces=namespaces, count=400, arrivals={"rate": 20})
        process = scale.start("run", "suite.yaml")
        wait_for(lambda: scale.so_far() > 20)
        for line in scale.processes():  # Seatrial, the supervisor, the driver and its watch
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line.split()[0]), signal.SIGKILL)
        process.communicate(timeout=WITHIN_S)
        assert len(everywhere(scale)) > 20
        scale.seatrial("reap", "--suite", "suite.yaml", check=0)
        nothing_left(scale)


def test_what_fills_the_cluster_and_what_finds_no_place_are_there_before_and_in_no_metric(scale: ScaleWorld) -> None:
    scale.trial(
        count=10, arrivals={"waves": 4, "delay": "50ms"}, fill={"count": 8}, background={"count": 5},
        workload={"kind": "pod", "gpus": 1},
    )  # fmt: skip
    scale.seatrial("run", "suite.yaml", check=0)
    made = scale.submissions()
    assert [one.get("phase", "measured") for one in made] == ["background"] * 5 + ["fill"] * 8 + ["measured"] * 10
    assert "10 of 10 workloads" in scale.findings()["bound scheduled.p99"].message
    stamps = (scale.attempt() / "files/stamps.jsonl").read_text()
    assert '"stage":"started"' in stamps.replace(" ", "")
    assert '"stage":"finished"' not in stamps.replace(" ", ""), "a fake node completed a pod"
    nothing_left(scale)


def test_a_restricted_namespace_takes_built_in_workloads_and_refuses_templates_before_the_first(
    scale: ScaleWorld,
) -> None:
    scale.cluster.kubectl("label", "namespace", scale.namespace, RESTRICTED)
    scale.trial(count=3)
    scale.seatrial("run", "suite.yaml", check=0)
    nothing_left(scale)
    pod = {"restartPolicy": "Never", "containers": [{"name": "JOB_NAME_PLACEHOLDER", "image": "x"}]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": {"template": {"spec": pod}}}
    (scale.folder / "job.yaml").write_text(json.dumps(job))
    scale.trial(count=3, workload={"template": "job.yaml"})
    scale.seatrial("run", "suite.yaml", check=1)
    refused = scale.findings()["driver"]
    assert (refused.verdict, refused.class_) == (Verdict.INVALID, "refused")
    assert "the server rejected the Job (workload) in a dry run" in refused.message
    assert 'violates PodSecurity "restricted:latest"' in refused.message
    assert scale.submissions() == []
    nothing_left(scale)


def test_churn_replaces_the_oldest_and_a_closed_loop_keeps_its_number(scale: ScaleWorld) -> None:
    scale.trial(
        count=12, arrivals={"in_flight": 5}, churn={"rate": "10/s", "for": "1s"}, workload={"kind": "pod", "gpus": 1}
    )
    scale.seatrial("run", "suite.yaml", check=0)
    assert sorted(one["number"] for one in scale.submissions()) == list(range(22))
    gone = (scale.attempt() / "files/deleted.jsonl").read_text().splitlines()
    assert len(gone) == 10
    assert "22 of 22 workloads" in scale.findings()["bound scheduled.p99"].message
    nothing_left(scale)


def test_churn_replaces_all_workloads_of_a_namespace(scale: ScaleWorld) -> None:
    with projects(scale, 2) as namespaces:
        churn = {"namespaces": 1, "every": "1s", "for": "2s"}
        workload = {"kind": "pod", "gpus": 1}
        scale.trial(count=8, arrivals={"rate": 20}, namespaces=namespaces, churn=churn, workload=workload)
        scale.seatrial("run", "suite.yaml", check=0)
        made = {one["number"]: one["namespace"] for one in scale.submissions()}
        gone = [json.loads(line) for line in (scale.attempt() / "files/deleted.jsonl").read_text().splitlines()]
        assert Counter(made[one["number"]] for one in gone) == dict.fromkeys(namespaces, 4)
        assert Counter(made.values()) == dict.fromkeys(namespaces, 8)
        assert "16 of 16 workloads" in scale.findings()["bound scheduled.p99"].message
        nothing_left(scale)


def test_a_fill_that_does_not_fit_ends_the_trial_before_the_first_measured_one(scale: ScaleWorld) -> None:
    fill = {"count": 3, "workload": {"kind": "pod", "gpus": 64}, "within": "2s"}
    scale.trial(count=5, fill=fill)
    scale.seatrial("run", "suite.yaml", check=1)
    assert "fill incomplete: 0 of 3 workloads reached started within 2 s" in scale.findings()["driver"].message
    assert "no node in this cluster fits" in scale.findings()["driver"].message
    assert {one["phase"] for one in scale.submissions()} == {"fill"}
    nothing_left(scale)


def test_workloads_that_can_never_start_end_the_trial_early_and_say_why(scale: ScaleWorld) -> None:
    scale.trial(count=3, workload={"kind": "pod", "gpus": 64}, settle="4h")
    scale.seatrial("run", "suite.yaml", check=1)
    for check in ("bound unfinished", "bound scheduled.p99"):
        message = scale.findings()[check].message
        assert "; 3 of 3 unfinished workloads: no node in this cluster fits: 0/" in message
        assert "Insufficient nvidia.com/gpu" in message
    nothing_left(scale)


def test_a_project_that_is_not_there_is_told_before_the_first_one_is_made(scale: ScaleWorld) -> None:
    scale.trial(namespaces=[scale.namespace, "no-such-project"])
    scale.seatrial("run", "suite.yaml", check=3)
    message = scale.findings()["driver"].message
    assert "no-such-project" in message
    assert scale.findings()["driver"].verdict is Verdict.INFRA
    nothing_left(scale)
