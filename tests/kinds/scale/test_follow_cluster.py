"""Measure only: workloads that others create on a real cluster. Nothing of theirs is changed or deleted."""

import os
import signal
import time
from typing import Any

import pytest

from cluster.fixtures import cluster
from kinds.scale.scale_world import WITHIN_S, ScaleWorld, driver_process, wait_for
from seatrial.job import Verdict

__all__ = ["cluster"]
pytestmark = pytest.mark.timeout(3600)


def job(name: str, pods: int = 1, gpus: int = 1, team: str = "research") -> dict[str, Any]:
    resources = {"requests": {"nvidia.com/gpu": str(gpus)}, "limits": {"nvidia.com/gpu": str(gpus)}}
    container = {"name": "main", "image": "x", "resources": resources}
    spec = {
        "completions": pods,
        "parallelism": pods,
        "completionMode": "Indexed",
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    return {"metadata": {"name": name, "labels": {"team": team}}, "spec": spec}


def create(scale: ScaleWorld, body: dict[str, Any], where: str = "/apis/batch/v1", plural: str = "jobs") -> None:
    scale.cluster.request("POST", f"{where}/namespaces/{scale.namespace}/{plural}", body)


def left(scale: ScaleWorld, kind: str) -> set[str]:
    return {*scale.cluster.kubectl("get", kind, "-n", scale.namespace, "-o", "name").stdout.split()}


def followed(scale: ScaleWorld, **fields: Any) -> None:
    follow = {"selector": "team=research", "for": "20s", **fields.pop("follow", {})}
    scale.trial(follow=follow, settle="20s", **{"bounds": {"scheduled.p99": "10m"}, **fields})
    suite = (scale.folder / "suite.yaml").read_text().splitlines()
    made = ("workload:", "count:", "arrivals:")  # nothing is created
    scale.suite("\n".join(line for line in suite if not line.strip().startswith(made)) + "\n")


def is_watching(scale: ScaleWorld) -> bool:
    """The canary is created after the watch has seen all that exists."""
    return any("canary" in one for one in left(scale, "pods"))


def test_jobs_of_others_are_measured_by_their_stages_and_stay(scale: ScaleWorld) -> None:
    create(scale, job("earlier"))
    followed(scale)
    process = scale.start("run", "suite.yaml")
    wait_for(lambda: is_watching(scale))
    create(scale, job("other-team", team="sales"))
    for number in range(3):
        create(scale, job(f"new-{number}", pods=2))
    process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0
    findings = scale.findings()
    assert "3 of 3 workloads, 0 unfinished" in findings["bound scheduled.p99"].message
    metrics = scale.results().cells[0].metrics
    assert "created" not in metrics
    assert metrics["scheduled"]["p50"]["value"] > 0
    stamps = (scale.attempt() / "files/stamps.jsonl").read_text().replace(" ", "")
    assert len({line for line in stamps.splitlines() if '"stage":"pod_created"' in line}) == 6, "two pods each"
    assert left(scale, "jobs") == {f"job.batch/{name}" for name in ("earlier", "other-team", "new-0", "new-1", "new-2")}
    assert len(left(scale, "pods")) == 8
    scale.seatrial("reap", "--suite", "suite.yaml", check=0)
    assert len(left(scale, "jobs")) == 5
    assert len(left(scale, "pods")) == 8


def test_a_job_of_others_that_fits_nowhere_is_unfinished_with_the_reason(scale: ScaleWorld) -> None:
    followed(scale)
    process = scale.start("run", "suite.yaml")
    wait_for(lambda: is_watching(scale))
    create(scale, job("fits"))
    create(scale, job("too-large", gpus=64))
    process.communicate(timeout=WITHIN_S)
    assert process.returncode == 1
    found = scale.findings()["bound unfinished"]
    assert found.verdict is Verdict.FAILED
    assert "1 of 2 workloads" in found.message
    assert "Insufficient nvidia.com/gpu" in found.message
    assert left(scale, "jobs") == {"job.batch/fits", "job.batch/too-large"}


def test_pods_of_others_are_workloads_themselves(scale: ScaleWorld) -> None:
    followed(scale, follow={"apiVersion": "v1", "kind": "Pod"}, bounds={"ready.p99": "10m"})
    process = scale.start("run", "suite.yaml")
    wait_for(lambda: is_watching(scale))
    spec = {"containers": [{"name": "main", "image": "x"}]}
    for number in range(3):
        body = {"metadata": {"name": f"p-{number}", "labels": {"team": "research"}}, "spec": spec}
        create(scale, body, "/api/v1", "pods")
        time.sleep(0.1)
    process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0
    assert "3 of 3 workloads, 0 unfinished" in scale.findings()["bound ready.p99"].message
    assert left(scale, "pods") == {"pod/p-0", "pod/p-1", "pod/p-2"}


def test_a_time_in_which_nothing_is_created_is_never_green(scale: ScaleWorld) -> None:
    followed(scale, follow={"for": "3s"}, bounds={})
    scale.seatrial("run", "suite.yaml", check=1)
    found = scale.findings()["measurement"]
    assert found.verdict is Verdict.INVALID
    assert "no workload was created meanwhile" in found.message


def test_a_watch_that_was_killed_is_invalid_and_what_others_created_stays(scale: ScaleWorld) -> None:
    followed(scale, follow={"for": "15s"})
    process = scale.start("run", "suite.yaml")
    wait_for(lambda: is_watching(scale))
    create(scale, job("before"))
    os.kill(driver_process(scale), signal.SIGKILL)
    process.communicate(timeout=WITHIN_S)
    assert process.returncode == 1
    found = scale.findings()["measurement"]
    assert found.verdict is Verdict.INVALID
    assert "killed and restarted" in found.message
    assert left(scale, "jobs") == {"job.batch/before"}
    assert len(left(scale, "pods")) == 1, "that of the job; the canary is gone"
