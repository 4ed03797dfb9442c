"""What becomes of jobs on a real node: each end is told as what it was, by events, and nothing waits for a time-out."""

import asyncio
import uuid
from typing import Any

import pytest
from msgspec import structs
from watched import LONG, PATIENT, SHORT, Result, Row, Watched, cancelled_when_asked, reports, results, watching

from cluster.cluster import Cluster
from seatrial.job import Exit, Outcome
from seatrial.kubernetes import JOBS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Tree
from seatrial.targets.kubernetes.watch.watcher import JobWatcher

pytestmark = pytest.mark.cluster

ALL_STAGES = ["created", "queued", "scheduled", "started", "finished"]
NEVER_STARTED = ["created", "queued", "scheduled", "finished"]
NODE = "real-0"
KILLED = Exit(Outcome.LOST, 137, 9, "the container and its agent were killed by signal 9 on real-0")
UP = {"exec": {"command": ["test", "-e", "/tmp/up"]}, "periodSeconds": 1, "timeoutSeconds": 60}
OUT_OF_MEMORY = Exit(Outcome.MEMORY, 137, 9, "the job exceeded its memory limit on real-0")


async def test_a_job_that_ends_well_gives_its_stages_and_keeps_its_pod(real_cluster: Cluster) -> None:
    async with watching(real_cluster) as watched:
        first = await watched.start("sleep 0.1")
        assert await watched.exit(first) == Exit(Outcome.EXITED, 0)
        handle = await watched.start(reports("exited", 0, "all done") + "sleep 1.2")
        assert await watched.exit(handle) == Exit(Outcome.EXITED, 0, message="all done")
        assert watched.stages(handle) == ALL_STAGES
        assert {event.hosts for event in watched.of(handle)[2:]} == {(NODE,)}
        assert {event.time.source for event in watched.of(handle)[1:] if event.time} == {"watch"}
        (pod,) = watched.watcher.pods(handle)
        assert pod.keeper_running
        assert pod.real
        assert (pod.trial_ended, pod.trial_running, pod.over) == (True, False, False)
        assert pod.pod.trial.terminated is not None
        assert pod.pod.trial.terminated.exit_code == 0
        assert pod.ended.is_set()
        watched.add(handle, await watched.client.get(JOBS, handle))  # again
        await watched.client.delete(JOBS, handle)
        await watched.watcher.gone(handle)
        assert len([event for event in watched.of(handle) if event.exit]) == 1


async def test_a_readiness_probe_gives_the_stage_ready(real_cluster: Cluster) -> None:
    async with watching(real_cluster) as watched:
        handle = await watched.start(f"touch /tmp/up; {LONG}", trial={"readinessProbe": UP})
        await watched.until(lambda: "ready" in watched.stages(handle))
        await _cancel(watched, handle)
        await watched.exit(handle)
        assert watched.stages(handle) == [*ALL_STAGES[:4], "ready", "finished"]


# All jobs of the tables below start at once, in as few namespaces as they need.
OWN_ENDS = {
    "own-message": (
        reports("exited", 3, "the test failed") + "exit 3",
        Exit(Outcome.EXITED, 3, message="the test failed"),
    ),
    "exit-code": ("exit 5", Exit(Outcome.EXITED, 5)),
    "timeout": (
        reports("timeout", None, "over its limit") + "exit 124",
        Exit(Outcome.TIMEOUT, message="over its limit"),
    ),
    "memory": ("tail /dev/zero", OUT_OF_MEMORY),
    "memory-after-a-message": (reports("exited", 0) + "exec tail /dev/zero", OUT_OF_MEMORY),
    "signal": (
        "(exit 139); exit $?",
        Exit(Outcome.LOST, 139, 11, "the container and its agent were killed by signal 11 on real-0"),
    ),
}


@pytest.fixture(scope="module")
def own_ends(real_cluster: Cluster) -> dict[str, Result]:
    """A kill for memory is sometimes not told: containerd learns of it after the end (containerd issues 8180, 12260).
    Such a job is run again."""
    rows, found = {name: Row(script) for name, (script, _) in OWN_ENDS.items()}, dict[str, Result]()
    for _ in range(5):
        found |= asyncio.run(results(real_cluster, rows, PATIENT))
        untold = [name for name, one in found.items() if OWN_ENDS[name][1] == OUT_OF_MEMORY and one.exit == KILLED]
        rows = {name: rows[name] for name in untold}
        if not rows:
            break
    return found


@pytest.mark.parametrize("name", OWN_ENDS)
def test_an_end_of_its_own_is_told_as_it_was(own_ends: dict[str, Result], name: str) -> None:
    assert own_ends[name].exit == OWN_ENDS[name][1]
    assert own_ends[name].stages == ALL_STAGES
    assert not own_ends[name].held_back


async def test_a_command_that_is_not_in_the_image_is_refused(real_cluster: Cluster) -> None:
    async with watching(real_cluster) as watched:
        handle = await watched.start(trial={"command": ["/bin/none"]})
        found = await watched.exit(handle)
        assert found.outcome is Outcome.REFUSED
        assert "/bin/none: no such file or directory" in found.message
        assert watched.stages(handle) == NEVER_STARTED


async def _evict(watched: Watched, handle: str) -> None:
    pod = watched.watcher.pods(handle)[0].name
    manifest = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    await watched.client.create(manifest, resource=PODS, name=pod, subresource="eviction")


async def _delete_pod(watched: Watched, handle: str) -> None:
    await watched.delete_pod(handle)


async def _force_pod(watched: Watched, handle: str) -> None:
    await watched.delete_pod(handle, grace_s=0)


async def _delete_root(watched: Watched, handle: str) -> None:
    await watched.client.delete(JOBS, handle)


async def _suspend(watched: Watched, handle: str) -> None:
    await watched.client.patch(JOBS, handle, {"spec": {"suspend": True}})


async def _delete_namespace(watched: Watched, handle: str) -> None:
    await watched.client.delete(NAMESPACES, watched.namespace)


async def _cancel(watched: Watched, handle: str) -> None:
    watched.watcher.mark_cancelled(handle)
    await watched.client.delete(JOBS, handle)


SCRIPTS = {"silent": LONG, "with-a-message": cancelled_when_asked()}
DONE_TO_IT = {
    "evict": (_evict, Outcome.EVICTED, "evicted from real-0 (for example because the node was drained)"),
    "delete-pod": (_delete_pod, Outcome.INFRA, "on real-0 was deleted by someone else"),
    "force-pod": (_force_pod, Outcome.INFRA, "on real-0 was deleted by someone else"),
    "delete-root": (_delete_root, Outcome.INFRA, "was deleted by someone else while it ran on real-0"),
    "suspend": (_suspend, Outcome.EVICTED, "was suspended (not by Seatrial) while it ran on real-0"),
    "delete-namespace": (_delete_namespace, Outcome.INFRA, "is being deleted"),
    "cancel": (_cancel, Outcome.CANCELLED, ""),
}


@pytest.fixture(scope="module")
def done_to_it(real_cluster: Cluster) -> dict[str, Result]:
    rows = {f"{name}-{how}": Row(SCRIPTS[how], act=DONE_TO_IT[name][0]) for name in DONE_TO_IT for how in SCRIPTS}
    alone = {name: row for name, row in rows.items() if row.act is _delete_namespace}
    together = {name: row for name, row in rows.items() if name not in alone}

    async def all_of_them() -> dict[str, Result]:
        groups = [together, *({name: row} for name, row in alone.items())]
        found = await asyncio.gather(*(results(real_cluster, group, PATIENT) for group in groups))
        return {name: result for group in found for name, result in group.items()}

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("how", SCRIPTS)
@pytest.mark.parametrize("name", DONE_TO_IT)
def test_what_is_done_to_a_running_job_is_told(done_to_it: dict[str, Result], name: str, how: str) -> None:
    found, (_, outcome, text) = done_to_it[f"{name}-{how}"], DONE_TO_IT[name]
    assert found.exit.outcome is outcome
    assert text in found.exit.message
    assert found.stages == ALL_STAGES


async def test_a_job_that_was_cancelled_and_ended_well_before_it_heard_ended_well(real_cluster: Cluster) -> None:
    """It hears of it when it has its trap, and has all the time that it needs to end."""
    ends_well = f"trap '{reports('exited', 0).replace(chr(39), '')}exit 0' TERM; touch /tmp/up; sleep 3600 & wait"
    async with watching(real_cluster) as watched:
        handle = await watched.start(ends_well, trial={"readinessProbe": UP}, terminationGracePeriodSeconds=300)
        await watched.until(lambda: "ready" in watched.stages(handle))
        await _cancel(watched, handle)
        assert await watched.exit(handle) == Exit(Outcome.EXITED, 0)


@pytest.mark.parametrize(
    ("where", "runs", "outcome"),
    [("root", True, Outcome.TIMEOUT), ("pod", True, Outcome.TIMEOUT), ("root", False, Outcome.QUEUE)],
)
async def test_a_deadline_of_the_cluster_is_told_as_one(
    real_cluster: Cluster, where: str, runs: bool, outcome: Outcome
) -> None:
    """One that runs gets its deadline then: how long a node needs to start it is not known."""
    nowhere: dict[str, Any] = {} if runs else {"nodeSelector": {"seatrial/none": "none"}}
    async with watching(real_cluster) as watched:
        handle = await watched.start(LONG, **nowhere)
        if runs:
            await watched.until_running(handle)
        resource, name = (JOBS, handle) if where == "root" else (PODS, watched.watcher.pods(handle)[0].name)
        await watched.client.patch(resource, name, {"spec": {"activeDeadlineSeconds": 1}})
        found = await watched.exit(handle)
        assert found.outcome is outcome
        assert "exceeded its deadline on the cluster" in found.message


async def test_an_eviction_by_the_node_is_told_in_its_words(real_cluster: Cluster) -> None:
    async with watching(real_cluster) as watched:
        limit = {"limits": {"ephemeral-storage": "5Mi"}}
        handle = await watched.start(f"head -c 30000000 /dev/zero > /tmp/x; {LONG}", trial={"resources": limit})
        found = await watched.exit(handle)
        assert found.outcome is Outcome.EVICTED
        assert "node real-0: Pod ephemeral local storage usage exceeds" in found.message


MOUNTED = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}


def _volume(**source: Any) -> dict[str, Any]:
    return {"trial": MOUNTED, "volumes": [{"name": "v", **source}]}


NOT_STARTED = {
    "image": ({"trial": {"image": "localhost/none:1"}}, Outcome.REFUSED, '"localhost/none:1" is not present'),
    "image-name": ({"trial": {"image": "A B"}}, Outcome.REFUSED, "InvalidImageName"),
    "registry": (
        {"trial": {"image": "127.0.0.1:1/none:1", "imagePullPolicy": "Always"}},
        Outcome.INFRA,
        "connection refused",
    ),
    "config-map": (_volume(configMap={"name": "none"}), Outcome.REFUSED, 'configmap "none" not found'),
    "secret": (_volume(secret={"secretName": "none"}), Outcome.REFUSED, 'secret "none" not found'),
    "claim": (
        _volume(persistentVolumeClaim={"claimName": "none"}),
        Outcome.REFUSED,
        'persistentvolumeclaim "none" not found',
    ),
    "secret-env": (
        {"trial": {"envFrom": [{"secretRef": {"name": "none"}}]}},
        Outcome.REFUSED,
        'secret "none" not found',
    ),
    "root-user": ({"securityContext": {"runAsNonRoot": True}}, Outcome.REFUSED, "runAsNonRoot"),
    "selector": (
        {"nodeSelector": {"seatrial/none": "none"}},
        Outcome.REFUSED,
        "no node in this cluster fits",
    ),
}


@pytest.fixture(scope="module")
def not_started(real_cluster: Cluster) -> dict[str, Result]:
    rows = {name: Row(pod=pod) for name, (pod, _, _) in NOT_STARTED.items()}
    return asyncio.run(results(real_cluster, rows, structs.replace(SHORT, setup_s=600)))  # a busy node tries again


@pytest.mark.parametrize("name", NOT_STARTED)
def test_what_keeps_a_job_from_starting_becomes_its_end_within_seconds(
    not_started: dict[str, Result], name: str
) -> None:
    found, (_, outcome, text) = not_started[name], NOT_STARTED[name]
    assert found.exit.outcome is outcome
    assert text in found.exit.message
    assert found.held_back  # before the exit was given
    assert text in found.progress
    assert "started" not in found.stages


async def test_what_was_missing_and_comes_in_time_lets_it_start(real_cluster: Cluster) -> None:
    async with watching(real_cluster) as watched:
        handle = await watched.start(trial={"envFrom": [{"secretRef": {"name": "late"}}]})
        await watched.until(lambda: watched.progress(handle))
        await watched.client.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late"}})
        assert await watched.exit(handle) == Exit(Outcome.EXITED, 0)
        assert watched.stages(handle) == ALL_STAGES
        assert watched.finals == []


async def test_a_full_node_is_waited_for_and_a_higher_priority_takes_the_place_of_a_lower(
    real_cluster: Cluster,
) -> None:
    thing = f"seatrial.test/{uuid.uuid4().hex[:8]}"  # of which the node has one, for this test alone
    asks: dict[str, Any] = {"trial": {"resources": {"limits": {thing: "1"}}}}
    async with watching(real_cluster) as watched:
        client, urgent = watched.client, f"urgent-{uuid.uuid4().hex[:6]}"
        await client.patch(NODES, NODE, {"status": {"capacity": {thing: "1"}}}, subresource="status")
        kind = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass", "value": 1000}
        await client.create({**kind, "metadata": {"name": urgent}})
        async for event in client.watch(NODES, Tree, fields=f"metadata.name={NODE}"):
            if event.object is not None and thing in event.object.status["allocatable"]:
                break
        try:
            holder = await watched.start(LONG, **asks)
            await watched.until_running(holder)
            waiter = await watched.start(**asks)
            await watched.until(lambda: watched.progress(waiter))
            assert watched.progress(waiter)[0] == f"waiting: 0/1 nodes are available: 1 Insufficient {thing}"
            taker = await watched.start(priorityClassName=urgent, **asks)
            found = await watched.exit(holder)
            assert found.outcome is Outcome.EVICTED
            assert "preempted on real-0 by a pod with higher priority" in found.message
            for handle in (taker, waiter):  # a place is free when a pod is gone, not when its trial has ended
                assert await watched.exit(handle) == Exit(Outcome.EXITED, 0)
                await client.delete(JOBS, handle)
        finally:
            await client.delete(PRIORITY_CLASSES, urgent)
            await client.patch(NODES, NODE, {"status": {"capacity": {thing: None}}}, subresource="status")


async def test_the_first_host_that_fails_decides_and_the_others_are_asked_to_end(real_cluster: Cluster) -> None:
    script = f"if [ $JOB_COMPLETION_INDEX = 1 ]; then {reports('exited', 7, 'bad luck')} exit 7; fi; {LONG}"
    async with watching(real_cluster) as watched:
        handle = await watched.start(script, hosts=3)
        await watched.until_running(handle, 2)
        await watched.until(lambda: watched.asked)
        assert watched.asked == [{0, 2}]
        assert not any(event.exit for event in watched.of(handle))
        for number in (0, 2):
            await watched.delete_pod(handle, number)
        found = await watched.exit(handle)
        assert found == Exit(Outcome.EXITED, 7, message="host 1 on real-0: bad luck")
        assert [pod.number for pod in watched.watcher.pods(handle)] == [0, 1, 2]
        assert len(watched.asked) == 1


async def test_jobs_that_ended_before_anybody_looked_give_all_their_events(real_cluster: Cluster) -> None:
    async with watching(real_cluster) as watched:
        good = await watched.start("sleep 1.1")
        bad = await watched.start(reports("exited", 4, "why") + "exit 4")
        deleted = await watched.start(LONG)
        for handle in (good, bad):
            await watched.exit(handle)
        uid = (await watched.client.get(JOBS, deleted)).metadata.uid
        await watched.client.delete(JOBS, deleted)
        await asyncio.wait_for(watched.watcher.gone(deleted), 600)

        again = Watched(watched.client, watched.namespace, JobWatcher(watched.client), run=watched.run)
        reading = asyncio.create_task(again.read())
        try:
            for handle in (good, bad):
                await again.take_up(handle)
            again.add(deleted, uid=uid)
            assert await again.exit(good) == Exit(Outcome.EXITED, 0)
            assert await again.exit(bad) == Exit(Outcome.EXITED, 4, message="why")
            assert again.stages(good) == ALL_STAGES
            times = {event.time.stage.value: event.time for event in again.of(good) if event.time}
            assert {stage: times[stage].source for stage in ALL_STAGES[1:]} == {
                "queued": "api-server",
                "scheduled": "api-server",
                "started": "kubelet",
                "finished": "kubelet",
            }
            assert {times[stage].uncertainty_s for stage in ALL_STAGES[1:]} == {0.5}
            live = {event.time.stage.value: event.time for event in watched.of(good) if event.time}
            for stage in ALL_STAGES[1:]:  # both are right, each as far as it says
                off_s = abs(live[stage].wall_s - times[stage].wall_s)
                assert off_s <= live[stage].uncertainty_s + times[stage].uncertainty_s + 0.1, stage
            gone = await again.exit(deleted)
            assert gone.outcome is Outcome.INFRA
            assert "was deleted" in gone.message
        finally:
            await again.watcher.close()
            await reading
