"""Workloads on a real API server with fake nodes: every one is made once, followed, judged and removed, whoever is
killed in between."""

import json
import os
import signal
from collections import Counter

import pytest

from cluster.fixtures import cluster
from kinds.scale.scale_world import WITHIN_S, ScaleWorld, driver_process, wait_for
from seatrial.job import Verdict
from targets.kubernetes.on_cluster import objects

__all__ = ["cluster"]
pytestmark = pytest.mark.timeout(1200)


def test_every_workload_is_made_once_followed_to_its_end_and_removed(scale: ScaleWorld) -> None:
    scale.trial(bounds={"scheduled.p99": "10m", "rate": ">=1"})
    scale.seatrial("run", "suite.yaml", check=0)
    assert sorted(one["number"] for one in scale.submissions()) == list(range(60))
    findings = scale.findings()
    assert "60 of 60 workloads, 0 unfinished, 0 with inexact time" in findings["bound scheduled.p99"].message
    assert findings["clean-up"].verdict is Verdict.PASSED
    metrics = scale.results().cells[0].metrics
    assert 0 < metrics["created"]["p50"]["value"] <= metrics["scheduled"]["p50"]["value"]
    assert metrics["scheduled"]["p50"]["value"] <= metrics["started"]["p50"]["value"]
    stages = Counter(
        json.loads(line)["stage"]
        for line in (scale.attempt() / "files/stamps.jsonl").read_text().splitlines()
        if "workload" in line
    )
    assert stages["pod_created"] == stages["scheduled"] == stages["started"] == 60
    scale.assert_nothing_left()


def test_two_cells_of_one_run_at_once_neither_see_nor_remove_each_others(scale: ScaleWorld) -> None:
    """The first is over, and has removed all of its own, before the second has sent its last, unless it begins late."""
    scale.trials(short={"count": 5}, long={"count": 120, "arrivals": {"rate": 8}})
    scale.seatrial("run", "suite.yaml", check=0)
    cells = {cell.id: cell for cell in scale.results().cells}
    for name, count in (("short", 5), ("long", 120)):
        (message,) = [one.message for one in cells[name].findings if one.check == "bound scheduled.p99"]
        assert f"{count} of {count} workloads, 0 unfinished, 0 with inexact time" in message
    short = scale.run().path / "cells" / cells["short"].hash / "1/driver"
    gone = [json.loads(line) for line in (short / "files/stamps.jsonl").read_text().splitlines()]
    assert {one["workload"] for one in gone if "workload" in one} == set(range(5)), "those of the other are not its own"
    scale.assert_nothing_left()


def test_gangs_that_do_not_fit_are_declared_unschedulable_and_counted_as_unfinished(scale: ScaleWorld) -> None:
    scale.trial(workload={"kind": "job", "gpus": 64}, count=5, settle="15s")
    scale.seatrial("run", "suite.yaml", check=1)
    findings = scale.findings()
    assert findings["bound unfinished"].verdict is Verdict.FAILED
    assert "5 of 5" in findings["bound unfinished"].message
    assert findings["bound scheduled.p99"].verdict is Verdict.FAILED
    assert scale.results().cells[0].metrics["unschedulable"]["p50"]["value"] > 0
    scale.assert_nothing_left()


def test_a_template_that_the_server_refuses_fails_before_the_first_one_is_made(scale: ScaleWorld) -> None:
    scale.trial(workload={"template": "t.yaml", "values": {"NUM_GPUS": 1}})
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"NUM_GPUS": "NUM_GPUS"}}
    (scale.folder / "t.yaml").write_text(json.dumps(manifest))
    scale.seatrial("run", "suite.yaml", check=1)
    assert "the server rejected the Job" in scale.findings()["driver"].message
    assert scale.submissions() == []
    scale.assert_nothing_left()


RANGE = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "r"},
    "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]},
}


def test_a_quota_that_refuses_some_is_told_before_and_with_what_the_server_said(scale: ScaleWorld) -> None:
    kubectl, namespace = scale.cluster.kubectl, scale.namespace
    kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(RANGE))
    kubectl("-n", namespace, "create", "quota", "q", "--hard=count/jobs.batch=21")
    wait_for(lambda: "21" in kubectl("-n", namespace, "get", "quota", "q", "-o", "jsonpath={.status.hard}").stdout)
    scale.trial(count=40)
    scale.seatrial("run", "suite.yaml", check=1)
    findings = scale.findings()
    assert f"in {namespace} has 20 count/jobs.batch left; 40 requested" in findings["preflight quota"].message
    assert f"LimitRange r in {namespace} may change or reject pods" in findings["preflight limit range"].message
    assert "Container max cpu=2" in findings["preflight limit range"].message
    failed = findings["bound failed"]
    assert failed.verdict is Verdict.FAILED
    assert "exceeded quota" in failed.evidence
    assert sum("acknowledged_s" in one for one in scale.submissions()) == 20  # one is the object of the run
    wait_for(lambda: not objects(scale.cluster, scale.namespace))


def test_a_driver_that_is_killed_makes_what_is_missing_and_judges_no_time(scale: ScaleWorld) -> None:
    scale.trial(count=150, arrivals={"rate": 10})
    process = scale.start("run", "suite.yaml")
    wait_for(lambda: scale.so_far() > 10)
    os.kill(driver_process(scale), signal.SIGKILL)
    process.communicate(timeout=WITHIN_S)
    assert sorted({one["number"] for one in scale.submissions()}) == list(range(150))
    findings = scale.findings()
    assert findings["measurement"].verdict is Verdict.INVALID
    assert "was killed and restarted" in findings["measurement"].message
    assert findings["bound failed"].verdict is Verdict.PASSED
    assert findings["bound unfinished"].verdict is Verdict.PASSED
    assert findings["bound scheduled.p99"].verdict is Verdict.SKIPPED
    scale.assert_nothing_left()


def test_seatrial_that_is_killed_is_attached_and_nothing_is_disturbed(scale: ScaleWorld) -> None:
    scale.trial(count=120, arrivals={"rate": 30})
    process = scale.start("run", "suite.yaml")
    wait_for(lambda: scale.so_far() > 30)
    process.kill()
    process.communicate()
    scale.seatrial("attach", "last", check=0)
    assert sorted(one["number"] for one in scale.submissions()) == list(range(120))
    assert scale.findings()["measurement"].verdict is Verdict.PASSED
    scale.assert_nothing_left()


def test_an_interrupt_stops_it_and_removes_all(scale: ScaleWorld) -> None:
    scale.trial(count=2000, arrivals={"rate": 20})
    process = scale.start("run", "suite.yaml")
    wait_for(lambda: scale.so_far() > 10 and scale.started())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WITHIN_S)
    assert process.returncode == 130
    scale.assert_nothing_left()
