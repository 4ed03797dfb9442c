"""From what was seen of pods to how a job ended, with values alone."""

import json
from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.job import Exit, Outcome, Stage, StageTime
from seatrial.targets.kubernetes.submit import JobAnnotation
from seatrial.targets.kubernetes.watch.ending import EndContext, host_exit, job_exit
from seatrial.targets.kubernetes.watch.jobs import TrackedPod
from seatrial.targets.kubernetes.watch.objects import PodObject, RootObject

ROOT = EndContext(root=RootObject(), root_name="job", namespace="trials")


def pod(
    ended: dict[str, Any] | None = None,
    *,
    running: bool = False,
    number: int = 0,
    deleted: bool | str = False,
    node: str = "node-a",
    disruption: tuple[str, str] | None = None,
    started_at: str | None = "2026-11-16T05:00:00Z",
    **status: Any,
) -> PodObject:
    states: list[dict[str, Any]] = []
    if ended is not None:
        terminated = {"startedAt": started_at, "finishedAt": "2026-11-16T05:00:09Z", **ended}
        states = [{"name": "trial", "state": {"terminated": terminated}}]
    elif running:
        states = [{"name": "trial", "state": {"running": {"startedAt": started_at}}}]
    conditions = []
    if disruption is not None:
        conditions = [{"type": "DisruptionTarget", "status": "True", "reason": disruption[0], "message": disruption[1]}]
    labels = {"seatrial/job": "job", "batch.kubernetes.io/job-completion-index": str(number)}
    meta: dict[str, Any] = {"name": f"job-{number}-abcde", "uid": f"u{number}", "labels": labels}
    if deleted:
        meta["deletionTimestamp"] = deleted if isinstance(deleted, str) else "2026-11-16T05:00:08Z"
        meta["deletionGracePeriodSeconds"] = 2
    whole = {
        "metadata": meta,
        "spec": {"nodeName": node},
        "status": {"containerStatuses": states, "conditions": conditions, **status},
    }
    return msgspec.convert(whole, PodObject)


def report(outcome: str, code: int | None = None, message: str = "", **more: Any) -> str:
    return json.dumps({"seatrial": 1, "outcome": outcome, "code": code, "message": message, "left": 0, **more})


def root(*conditions: tuple[str, str, str], suspend: bool = False) -> RootObject:
    found = [{"type": kind, "status": "True", "reason": why, "message": text} for kind, why, text in conditions]
    return msgspec.convert({"spec": {"suspend": suspend}, "status": {"conditions": found}}, RootObject)


def host(
    found: PodObject,
    finished_s: float = 0.0,
    *,
    gone: bool = False,
    silent: bool = False,
    deleted_s: float | None = None,
) -> TrackedPod:
    made = TrackedPod(found)
    made.times[Stage.FINISHED] = StageTime(Stage.FINISHED, finished_s, "kubelet")
    made.gone, made.silent = gone, silent
    made.deleted_s = deleted_s or made.deleted_s
    return made


def ended(found: PodObject, around: EndContext = ROOT, **state: Any) -> Exit:
    return host_exit(host(found, **state), around)


DEADLINE = root(("Failed", "DeadlineExceeded", "Job was active longer than specified deadline"))


@pytest.mark.parametrize(
    ("outcome", "code", "exit_code"),
    [("exited", 0, 0), ("exited", 3, 3), ("timeout", None, 124), ("stall", None, 124), ("memory", None, 1)],
)
def test_the_trials_own_message_says_how_it_ended(outcome: str, code: int | None, exit_code: int) -> None:
    ended_pod = pod({"exitCode": exit_code, "message": report(outcome, code, "as it was")})
    assert ended(ended_pod) == Exit(Outcome(outcome), code, message="as it was")


@pytest.mark.parametrize(
    ("message", "exit_code"),
    [
        (report("exited", 0), 3),  # written before it was over
        (report("exited", 0), 137),
        (report("timeout"), 0),
        (report("cancelled"), 137),
        (report("evicted"), 1),  # not its to say
        (report("lost"), 1),
        (report("nonsense"), 1),
        (report("exited", 0).replace('"seatrial": 1', '"seatrial": 2'), 1),
        ('{"seatrial": 1, "outcome": ', 1),
        ("[1, 2]", 1),
        ("", 1),
    ],
)
def test_a_word_that_cannot_be_is_not_believed(message: str, exit_code: int) -> None:
    found = ended(pod({"exitCode": exit_code, "message": message}))
    assert found.outcome in (Outcome.EXITED, Outcome.LOST)
    assert found.code == exit_code


def test_hostile_text_is_shown_bounded_and_printable() -> None:
    nasty = "\x1b]0;owned\x07\u202ebad\x00 line\nsecond line " + "x" * 5000
    for message in (
        report("exited", 1, nasty)[:4096],
        nasty,
        report("exited", 1, nasty[:1500]),
    ):
        shown = ended(pod({"exitCode": 1, "message": message})).message
        assert len(shown) <= 1000
        assert all(one.isprintable() or one == "\n" for one in shown)


@settings(max_examples=100)
@given(st.text(max_size=300), st.integers(0, 255), st.sampled_from(["", "Error", "OOMKilled", "StartError", "Unknown"]))
def test_whatever_a_container_leaves_behind_has_an_end(message: str, exit_code: int, reason: str) -> None:
    found = ended(pod({"exitCode": exit_code, "message": message, "reason": reason}))
    assert isinstance(found.outcome, Outcome)
    assert all(one.isprintable() or one == "\n" for one in found.message)


def test_a_kill_for_memory_is_told_from_other_kills() -> None:
    killed = ended(pod({"exitCode": 137, "reason": "OOMKilled"}))
    assert (killed.outcome, killed.signal) == (Outcome.MEMORY, 9)
    assert "exceeded its memory limit on node-a" in killed.message
    other = ended(pod({"exitCode": 137, "reason": "Error"}))
    assert (other.outcome, other.signal, other.code) == (Outcome.LOST, 9, 137)
    child = ended(pod({"exitCode": 0, "reason": "OOMKilled"}))  # one of its processes was killed, and it went on
    assert (child.outcome, child.code) == (Outcome.EXITED, 0)
    own = ended(pod({"exitCode": 1, "reason": "OOMKilled", "message": report("memory", None, "step 2")}))
    assert own == Exit(Outcome.MEMORY, message="step 2")


@pytest.mark.parametrize(("code", "signal"), [(139, 11), (143, 15), (134, 6), (192, 64)])
def test_an_exit_code_that_stands_for_a_signal_is_one(code: int, signal: int) -> None:
    found = ended(pod({"exitCode": code}))
    assert (found.outcome, found.signal) == (Outcome.LOST, signal)


@pytest.mark.parametrize("code", [0, 1, 3, 127, 128, 200, 255])
def test_other_exit_codes_are_just_that(code: int) -> None:
    assert ended(pod({"exitCode": code, "message": "last words"})) == Exit(Outcome.EXITED, code, message="last words")


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("PreemptionByScheduler", "preempted on node-a by a pod with higher priority"),
        ("DeletionByTaintManager", "node node-a was lost or tainted"),
        ("EvictionByEvictionAPI", "evicted from node-a (for example because the node was drained)"),
        ("DeletionByPodGC", "node node-a no longer exists"),
        ("SomethingNew", "SomethingNew on node-a"),
    ],
)
def test_who_took_its_place_away_is_reported_with_the_node(reason: str, text: str) -> None:
    asked_to_end = {"exitCode": 143, "message": report("cancelled", None, "it was asked to end")}
    for seen in (asked_to_end, {"exitCode": 143}, {"exitCode": 137}, None):
        found = ended(pod(seen, deleted=True, disruption=(reason, "its own message")), gone=seen is None)
        assert found.outcome is Outcome.EVICTED
        assert found.message == f"{text}: its own message"


def test_an_eviction_by_the_node_says_for_what() -> None:
    why: dict[str, Any] = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    gone = ended(pod(None, disruption=("TerminationByKubelet", "short"), **why))
    assert gone == Exit(Outcome.EVICTED, message="stopped by node node-a: The node was low on resource: memory.")
    assert ended(pod({"exitCode": 137}, **why)).message.startswith("evicted by node node-a: The node was low")


def test_what_ended_by_itself_before_it_was_evicted_ended_by_itself() -> None:
    late = pod(
        {"exitCode": 0, "message": report("exited", 0)},
        deleted=True,
        disruption=("EvictionByEvictionAPI", ""),
    )
    assert ended(late) == Exit(Outcome.EXITED, 0)
    for code, outcome in ((3, Outcome.EXITED), (137, Outcome.LOST)):
        before = pod({"exitCode": code}, deleted="2026-11-16T05:00:12Z")  # deleted a second after it had ended
        assert ended(before).outcome is outcome
    after = pod({"exitCode": 3}, deleted="2026-11-16T05:00:11Z")  # asked to end, it ended badly without a message
    assert ended(after).outcome is Outcome.INFRA
    assert ended(pod({"exitCode": 0}, deleted="2026-11-16T05:00:11Z")).outcome is Outcome.EXITED


def test_a_deletion_by_somebody_is_told_as_what_was_deleted() -> None:
    seen = pod({"exitCode": 143, "message": report("cancelled")}, deleted=True)
    assert ended(seen) == Exit(Outcome.INFRA, message="pod job-0-abcde on node-a was deleted by someone else")
    of_root = msgspec.structs.replace(ROOT, root_gone=True)
    assert "Job job was deleted by someone else while it ran on node-a" in ended(seen, of_root).message
    of_all = msgspec.structs.replace(of_root, namespace_going=True)
    assert ended(seen, of_all) == Exit(Outcome.INFRA, message="the namespace trials is being deleted")
    held = msgspec.structs.replace(ROOT, root=root(suspend=True))
    assert ended(seen, held).outcome is Outcome.EVICTED


def test_a_cancellation_of_ours_is_one_whatever_took_part_in_it() -> None:
    ours = msgspec.structs.replace(ROOT, cancelled=True, root_gone=True)
    for seen in ({"exitCode": 143, "message": report("cancelled")}, {"exitCode": 137}, None):
        assert ended(pod(seen, deleted=True), ours, gone=seen is None).outcome is Outcome.CANCELLED
    done = pod({"exitCode": 0, "message": report("exited", 0)}, deleted=True)
    assert ended(done, ours).outcome is Outcome.EXITED  # it was quicker
    assert job_exit([], ours).outcome is Outcome.CANCELLED
    by_another = pod({"exitCode": 143, "message": report("cancelled", None, "asked to")})
    assert ended(by_another) == Exit(Outcome.CANCELLED, message="asked to")


def test_a_deadline_of_the_cluster_is_a_timeout_or_a_queue_that_was_too_long() -> None:
    late = msgspec.structs.replace(ROOT, root=DEADLINE)
    assert ended(pod({"exitCode": 143}, deleted=True), late).outcome is Outcome.TIMEOUT
    never = pod(None, deleted=True, node="")
    assert ended(never, late, gone=True).outcome is Outcome.QUEUE
    assert ended(pod({"exitCode": 137}, phase="Failed", reason="DeadlineExceeded")).outcome is Outcome.TIMEOUT
    assert ended(pod(None, phase="Failed", reason="DeadlineExceeded")).outcome is Outcome.QUEUE
    assert job_exit([], late).outcome is Outcome.QUEUE


@pytest.mark.parametrize(
    ("message", "outcome"),
    [
        ('exec: "/bin/sh": stat /bin/sh: no such file or directory: unknown', Outcome.REFUSED),
        ("exec /bin/sh: exec format error", Outcome.REFUSED),
        ("container init was OOM-killed (memory limit too low?)", Outcome.REFUSED),
        ("nvidia-container-cli: initialization error: driver error", Outcome.INFRA),
        ("", Outcome.INFRA),
    ],
)
def test_a_container_that_cannot_start_is_refused_when_the_image_is_wrong(message: str, outcome: Outcome) -> None:
    failing = {"exitCode": 128, "reason": "StartError", "message": message}
    found = ended(pod(failing, started_at="1970-01-01T00:00:00Z"))
    assert found.outcome is outcome
    assert "could not be started on node-a" in found.message


def test_a_node_that_lost_track_of_it_has_lost_it() -> None:
    seen = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": "The container could not be located"}
    assert ended(pod(seen)).outcome is Outcome.LOST
    assert "node-a" in ended(pod(seen)).message


def test_a_node_that_does_not_answer_is_named_and_it_may_still_be_running_there() -> None:
    silent = host(pod(running=True, deleted=True, disruption=("DeletionByTaintManager", "")), silent=True)
    assert silent.stopped
    found = host_exit(silent, ROOT)
    assert found.outcome is Outcome.LOST
    assert "node node-a does not answer, so the job may still be running" in found.message
    ours = host_exit(silent, msgspec.structs.replace(ROOT, cancelled=True))
    assert ours.outcome is Outcome.CANCELLED
    assert "may still be running" in ours.message


def test_a_pod_that_a_node_would_not_take_is_no_fault_of_the_job() -> None:
    found = ended(pod(None, phase="Failed", reason="UnexpectedAdmissionError", message="no GPU left"))
    assert found == Exit(Outcome.INFRA, message="UnexpectedAdmissionError: no GPU left on node-a")


def test_a_container_of_the_template_that_fails_before_the_trial_is_named() -> None:
    state = {"terminated": {"exitCode": 7, "message": "no dataset"}}
    found = ended(pod(phase="Failed", initContainerStatuses=[{"name": "fetch", "state": state}]))
    assert found.outcome is Outcome.INFRA
    assert found.message == "container fetch failed with exit code 7 before the job started: no dataset on node-a"


def test_how_steps_ended_is_not_read_from_the_code_of_a_kill() -> None:
    job = JobAnnotation("j", "r", runs=1)
    for code, known in ((0, True), (3, True), (137, False), (143, False)):
        lines = job.records(pod({"exitCode": code}))
        assert [line["code"] for line in lines if line["event"] == "done"] == ([code] if known else [])


def test_the_first_host_that_failed_decides_and_is_named() -> None:
    hosts = [
        host(pod({"exitCode": 143, "message": report("cancelled")}, number=0), 20.0),
        host(pod({"exitCode": 7, "message": report("exited", 7)}, number=1, node="node-b"), 12.0),
        host(pod({"exitCode": 1, "message": report("exited", 1, "peer is gone")}, number=2), 13.0),
    ]
    assert job_exit(hosts, ROOT) == Exit(Outcome.EXITED, 7, message="host 1 on node-b: exit code 7")
    good = [host(pod({"exitCode": 0, "message": report("exited", 0)}, number=number), 1.0) for number in range(3)]
    assert job_exit(good, ROOT) == Exit(Outcome.EXITED, 0)


def test_hosts_that_were_ended_because_of_another_do_not_decide() -> None:
    failed = root(("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"))
    around = msgspec.structs.replace(ROOT, root=failed)
    evicted = pod({"exitCode": 137}, number=1, node="node-b", deleted=True, disruption=("PreemptionByScheduler", ""))
    hosts = [
        host(pod({"exitCode": 143}, number=0, deleted=True), 10.0),  # ended sooner than the one it was ended for
        host(evicted, 40.0),
    ]
    found = job_exit(hosts, around)
    assert found.outcome is Outcome.EVICTED
    assert found.message.startswith("host 1 on node-b: preempted on node-b by a pod with higher priority")


def test_without_pods_the_root_is_all_that_can_tell() -> None:
    complete = root(("Complete", "CompletionsReached", ""))
    assert job_exit([], msgspec.structs.replace(ROOT, root=complete)) == Exit(
        Outcome.EXITED, 0, message="the job completed, but its pods no longer exist"
    )
    failed = root(("Failed", "BackoffLimitExceeded", "too often"))
    lost = job_exit([], msgspec.structs.replace(ROOT, root=failed))
    assert lost.outcome is Outcome.LOST
    assert "BackoffLimitExceeded: too often" in lost.message
    gone = job_exit([], msgspec.structs.replace(ROOT, root_gone=True))
    assert gone == Exit(Outcome.INFRA, message="Job job was deleted by someone else before it ran")


def test_a_pod_as_it_is_now_has_what_runs_and_how_steps_ended() -> None:
    steps = {"steps": [["exited", 0], ["timeout", None]]}
    ended_pod = pod({"exitCode": 124, "message": report("timeout", None, "", **steps)}, number=2)
    now = TrackedPod(ended_pod)
    assert (now.number, now.trial_ended, now.over) == (2, True, False)
    done = [one for one in JobAnnotation("j", "r").records(ended_pod) if one["event"] == "done"]
    assert [(one["outcome"], one["code"]) for one in done] == [("exited", 0), ("timeout", None)]
    assert TrackedPod(pod(running=True)).trial_running
    gone = TrackedPod(pod(running=True))
    gone.update(gone.pod, 1e10, live=True, gone=True)
    assert (gone.trial_running, gone.trial_ended, gone.over, gone.real) == (False, True, True, False)
    odd = pod({"exitCode": 0, "message": report("exited", 0, steps=[["what", 1]])})
    assert JobAnnotation("j", "r").records(odd) == []


@pytest.mark.parametrize(
    ("labels", "number"),
    [
        ({}, 0),
        ({"batch.kubernetes.io/job-completion-index": "3"}, 3),
        ({"batch.kubernetes.io/job-completion-index": "0", "jobset.sigs.k8s.io/job-global-index": "2"}, 2),
        ({"batch.kubernetes.io/job-completion-index": "-1"}, 0),
        ({"batch.kubernetes.io/job-completion-index": "x" * 100}, 0),
    ],
)
def test_a_host_has_the_number_that_its_controller_gave_it(labels: dict[str, str], number: int) -> None:
    assert msgspec.convert({"metadata": {"labels": labels}}, PodObject).number == number


def test_a_pod_that_its_node_deleted_once_more_was_asked_to_end_the_first_time() -> None:
    late = pod({"exitCode": 143}, deleted="2026-11-16T05:00:20Z")  # by the node, when it was done with it
    first_s = datetime.fromisoformat("2026-11-16T05:00:08Z").timestamp()
    assert host_exit(host(late, gone=True), EndContext()).outcome is Outcome.LOST
    found = host_exit(host(late, gone=True, deleted_s=first_s), EndContext(namespace="ns", namespace_going=True))
    assert found == Exit(Outcome.INFRA, message="the namespace ns is being deleted")


def test_a_job_that_failed_because_its_only_pod_was_deleted_is_not_the_reason_for_that() -> None:
    several = msgspec.structs.replace(ROOT, root=root(("Failed", "BackoffLimitExceeded", "too many")))
    found = pod({"exitCode": 143}, deleted=True)
    assert "because the Job failed" in ended(found, several).message
    assert "was deleted by someone else" in ended(found, msgspec.structs.replace(several, alone=True)).message
