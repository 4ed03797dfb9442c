"""Faults of a real cluster: a quota that refuses half, a webhook that never answers, and kills of everyone involved.
After each, every workload is there once, its stages are known or said to be censored, and nothing is left."""

import contextlib
import json
import os
import random
import signal
import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.fixtures import cluster
from kinds.scale.scale_world import WITHIN_S, ScaleWorld, driver_process, wait_for
from seatrial.job import Verdict
from world import EVERY

__all__ = ["cluster"]
pytestmark = pytest.mark.timeout(3600)
COUNT = 1000 if EVERY else 60
POINTS = ("written submitted", "fetched")  # of every run, where only a few are tried
PARTS = 8 if EVERY else 1  # of all points, so that each part takes minutes


def assert_each_once(scale: ScaleWorld, count: int) -> None:
    """Every workload was made, and is accounted for in the metrics; nothing is left."""
    assert sorted(one["number"] for one in scale.submissions()) == list(range(count))
    findings = scale.findings()
    assert findings["bound failed"].verdict is Verdict.PASSED, findings["bound failed"].message
    assert findings["bound unfinished"].verdict is Verdict.PASSED, findings["bound unfinished"].message
    assert f"{count} of {count} workloads, 0 unfinished" in findings["bound scheduled.p99"].message
    assert findings["clean-up"].verdict is Verdict.PASSED
    scale.assert_nothing_left()


@contextlib.contextmanager
def silent_webhook(scale: ScaleWorld) -> Iterator[None]:
    """Asked before every Job of the namespace is made, and never answers."""
    name = f"silent-{uuid.uuid4().hex[:8]}"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        hook: dict[str, Any] = {
            "name": f"{name}.example.com",
            "clientConfig": {"url": f"https://127.0.0.1:{listening.getsockname()[1]}/"},
            "rules": [{"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scale.namespace}},
            "failurePolicy": "Fail",
            "timeoutSeconds": 1,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        made = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [hook],
        }
        where = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        scale.cluster.request("POST", where, made)
        try:
            yield
        finally:
            scale.cluster.request("DELETE", f"{where}/{name}")


def test_a_webhook_that_does_not_answer_fails_what_it_was_asked_about_and_no_more(scale: ScaleWorld) -> None:
    scale.trial(count=60, arrivals={"rate": 3})  # so long that the webhook comes in between, however late
    process = scale.start("run", "suite.yaml")
    wait_for(lambda: scale.so_far() >= 5)
    with silent_webhook(scale):
        wait_for(lambda: "failed calling webhook" in scale.written_so_far())
    process.communicate(timeout=WITHIN_S)
    assert process.returncode == 1
    made = scale.submissions()
    assert sorted(one["number"] for one in made) == list(range(60)), "every one is accounted for"
    failed = [one for one in made if one.get("problem")]
    assert failed
    assert all(set(one["refusals"]) == {500} and one["attempts"] > 1 for one in failed), "each was tried again"
    findings = scale.findings()
    assert f"{len(failed)} of 60" in findings["bound failed"].message
    assert "failed calling webhook" in findings["bound failed"].evidence
    assert findings["clean-up"].verdict is Verdict.PASSED
    scale.assert_nothing_left()


def test_a_webhook_that_does_not_answer_from_the_beginning_is_told_before_the_first_is_sent(scale: ScaleWorld) -> None:
    scale.trial(count=5)
    with silent_webhook(scale):
        scale.seatrial("run", "suite.yaml")
    assert "failed calling webhook" in json.dumps([one.message for one in scale.results().cells[0].findings])
    assert list(scale.run().path.glob("cells/*/1/driver/files/submitted.jsonl")) == [] or scale.submissions() == []
    scale.assert_nothing_left()


@pytest.mark.parametrize("part", range(PARTS))
def test_seatrial_that_is_killed_at_any_point_disturbs_nothing(scale: ScaleWorld, part: int) -> None:
    scale.trial(count=COUNT, arrivals={"rate": 40 if EVERY else 20}, settle="10m")
    log = scale.folder / "points"
    scale.seatrial("run", "suite.yaml", check=0, SEATRIAL_FAILPOINT_LOG=str(log))
    assert_each_once(scale, COUNT)
    names = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    chosen = range(1 + part, len(names) + 1, PARTS) if EVERY else [names.index(name) + 1 for name in POINTS]
    for point in chosen:
        killed = scale.seatrial("run", "suite.yaml", SEATRIAL_FAILPOINT=str(point))
        assert killed.returncode == -signal.SIGKILL, f"{point} {names[point - 1]}: {killed.stdout}{killed.stderr}"
        scale.seatrial("attach", "last", check=0)
        assert_each_once(scale, COUNT)


@pytest.mark.parametrize("seed", range(10 if EVERY else 1))
def test_a_driver_that_is_killed_at_a_random_instant_makes_each_once(scale: ScaleWorld, seed: int) -> None:
    """Up to three times, as often as it is started again; one that ended before its kill came has nothing to say."""
    chance = random.Random(seed)
    scale.trial(count=COUNT, arrivals={"rate": 40 if EVERY else 10}, settle="10m")
    process, kills = scale.start("run", "suite.yaml"), 0
    for instant in sorted(chance.sample(range(COUNT), chance.randrange(1, 4))):
        wait_for(lambda instant=instant: scale.so_far() > instant or process.poll() is not None)
        with contextlib.suppress(ValueError, ProcessLookupError):  # it is between two lives, or has ended
            os.kill(driver_process(scale), signal.SIGKILL)
            kills += 1
    process.communicate(timeout=3 * WITHIN_S)
    assert (scale.findings()["measurement"].verdict is Verdict.INVALID) == bool(kills)
    assert_each_once(scale, COUNT)
