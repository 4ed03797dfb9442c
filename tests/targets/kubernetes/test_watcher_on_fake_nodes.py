"""What keeps jobs from starting on a cluster of many nodes, and thousands of jobs at once."""

import asyncio
import uuid
from dataclasses import replace
from typing import Any

import pytest
from on_cluster import RESTRICTED
from watched import SHORT, Result, Row, Watched, pod_spec, results, root_manifest, watching

from cluster.cluster import Cluster
from seatrial.job import Exit, Outcome
from seatrial.kubernetes import (
    JOBS,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    Access,
    Identity,
    Kubernetes,
    Tree,
    load_access,
)
from seatrial.targets.protocol import TargetError
from world import EVERY

pytestmark = pytest.mark.cluster

ALL_STAGES = ["created", "queued", "scheduled", "started", "finished"]


def gpus(count: int) -> dict[str, Any]:
    return {"trial": {"resources": {"limits": {"nvidia.com/gpu": str(count)}}}}


NEVER = {
    "service-account": ({"serviceAccountName": "none"}, 'serviceaccount "none" not found'),
    "priority-class": ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
    "selector": ({"nodeSelector": {"seatrial/none": "none"}}, "didn't match Pod's node affinity/selector"),
    "too-many-gpus": (gpus(9), "9 of nvidia.com/gpu requested, no node has more than 8"),
    "unknown-resource": (
        {"trial": {"resources": {"limits": {"example.com/none": "1"}}}},
        "1 of example.com/none requested, no node has any",
    ),
}


@pytest.fixture(scope="module")
def never(cluster: Cluster) -> dict[str, Result]:
    return asyncio.run(results(cluster, {name: Row(pod=pod) for name, (pod, _) in NEVER.items()}, SHORT))


@pytest.mark.parametrize("name", NEVER)
def test_what_can_never_start_here_is_refused_with_the_reason(never: dict[str, Result], name: str) -> None:
    assert never[name].exit.outcome is Outcome.REFUSED
    assert NEVER[name][1] in never[name].exit.message
    assert never[name].held_back


async def test_pods_that_the_namespace_forbids_are_refused_with_what_it_demands(cluster: Cluster) -> None:
    async with watching(cluster, SHORT, labels=[RESTRICTED]) as watched:
        found = await watched.exit(await watched.start())
        assert found.outcome is Outcome.REFUSED
        assert 'violates PodSecurity "restricted:latest"' in found.message
        assert "seccompProfile" in found.message  # the last of what it demands


async def test_a_quota_that_is_full_is_waited_for_and_one_that_is_too_small_is_not(cluster: Cluster) -> None:
    async with watching(cluster, SHORT) as watched:
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
        await watched.client.create({**quota, "spec": {"hard": {"requests.nvidia.com/gpu": "2"}}})
        async with asyncio.timeout(600):  # it does not hold before its controller has counted
            while not ((await watched.client.get(RESOURCE_QUOTAS, "q", Tree)).status or {}).get("used"):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        holder = await watched.start(**gpus(2), schedulingGates=[{"name": "test.example/gate"}])
        await watched.until(lambda: watched.watcher.pods(holder))
        waits = await watched.start(**gpus(1))
        await watched.until(lambda: watched.progress(waits))
        assert "waiting for room in the namespace's quota: exceeded quota: q" in watched.progress(waits)[0]
        too_small = await watched.exit(await watched.start(**gpus(3)))  # takes longer than the other is given up for
        assert too_small.outcome is Outcome.REFUSED
        await watched.client.patch(RESOURCE_QUOTAS, "q", {"spec": {"hard": {"requests.nvidia.com/gpu": "3"}}})
        assert await watched.exit(waits) == Exit(Outcome.EXITED, 0)


async def autoscaler_says(watched: Watched, handle: str, reason: str, message: str) -> None:
    """The word of a cluster autoscaler about the pod of a job: no such program can add a node here."""
    (pod,) = watched.watcher.pods(handle)
    about = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "namespace": watched.namespace}
    event = {"metadata": {"generateName": "scale-"}, "involvedObject": about, "type": "Normal"}
    stamps = {"firstTimestamp": "2026-11-16T05:00:00Z", "lastTimestamp": "2026-11-16T05:00:00Z"}
    source = {"source": {"component": "cluster-autoscaler"}, "reason": reason, "message": message}
    await watched.client.create({"apiVersion": "v1", "kind": "Event", **event, **stamps, **source})


async def test_an_autoscaler_that_can_add_no_node_for_it_ends_the_waiting(cluster: Cluster) -> None:
    async with watching(cluster, SHORT) as watched:
        handle = await watched.start(limited=True, nodeSelector={"seatrial/none": "none"})
        await watched.until(lambda: "waiting for a new node" in " ".join(watched.progress(handle)))
        said = "pod didn't trigger scale-up: 1 node(s) didn't match Pod's node affinity/selector"
        await autoscaler_says(watched, handle, "NotTriggerScaleUp", said)
        found = await watched.exit(handle)
        assert found.outcome is Outcome.REFUSED
        assert said in found.message


async def test_a_node_that_an_autoscaler_adds_takes_it(cluster: Cluster) -> None:
    """However long that takes: the limit is the engine's. The node is for this job alone: others use the cluster too,
    and it goes at the end with all that runs there."""
    thing, name = f"example.com/{uuid.uuid4().hex[:8]}", f"late-{uuid.uuid4().hex[:8]}"
    alone = {"key": f"seatrial.test/{name}", "value": "yes", "effect": "NoSchedule"}
    async with watching(cluster, SHORT) as watched:
        client = watched.client
        handle = await watched.start(
            limited=True,
            trial={"resources": {"limits": {thing: "1"}}},
            tolerations=[{"key": alone["key"], "operator": "Exists"}],
        )
        await watched.until(lambda: "no node has any" in " ".join(watched.progress(handle)))
        said = "pod triggered scale-up: [{pool 0->1 (max: 3)}]"
        await autoscaler_says(watched, handle, "TriggeredScaleUp", said)
        await watched.until(lambda: f"waiting for a new node: {said}" in watched.progress(handle))
        other = await watched.start(**gpus(9))  # waits for as long as one without a limit may, and is given up
        assert (await watched.exit(other)).outcome is Outcome.REFUSED
        there = await client.get(NODES, "fake-0", Tree)
        room = {**there.status["capacity"], thing: "1", "nvidia.com/gpu": "0"}
        labels = {**there.metadata.labels, "kubernetes.io/hostname": name}
        status = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
        await client.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels},
                "spec": {"taints": [alone]},
                "status": {**status, "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]},
            }
        )
        try:
            await client.patch(NODES, name, {"spec": {"taints": [alone]}})
            assert await watched.exit(handle) == Exit(Outcome.EXITED, 0)
            assert {event.hosts for event in watched.of(handle) if event.exit} == {(name,)}
        finally:
            await client.delete(NODES, name)


async def test_all_hosts_must_come_to_a_stage_and_are_named_in_their_order(cluster: Cluster) -> None:
    others = {"labelSelector": {"matchLabels": {"seatrial/part": "pod"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [others]}}
    async with watching(cluster) as watched:
        handle = await watched.start(hosts=4, affinity=apart)
        assert await watched.exit(handle) == Exit(Outcome.EXITED, 0)
        assert watched.stages(handle) == ALL_STAGES
        pods = watched.watcher.pods(handle)
        assert [pod.number for pod in pods] == [0, 1, 2, 3]
        # A node may get a second one, when its first had ended before that came.
        assert watched.of(handle)[-1].hosts == tuple(dict.fromkeys(pod.pod.spec.node_name for pod in pods))
        assert not any(pod.real for pod in pods)


async def test_a_root_that_is_deleted_before_it_has_pods_ends_its_job(cluster: Cluster) -> None:
    async with watching(cluster) as watched:
        handle = await watched.start(root={"suspend": True})
        cancelled = await watched.start(root={"suspend": True})
        await watched.until(lambda: watched.progress(handle))
        assert "suspended by a queue controller or a user" in watched.progress(handle)[0]
        assert watched.stages(handle) == ["created"]
        watched.watcher.mark_cancelled(cancelled)
        for name in (handle, cancelled):
            await watched.client.delete(JOBS, name)
        found = await watched.exit(handle)
        assert found == Exit(Outcome.INFRA, message=f"Job {handle} was deleted by someone else before it ran")
        assert await watched.exit(cancelled) == Exit(Outcome.CANCELLED)
        await asyncio.wait_for(watched.watcher.gone(handle), 600)


async def test_what_kueue_holds_back_is_queued_and_says_so(cluster: Cluster) -> None:
    """Kueue's part is played here: a root that stays suspended, and a warning about its workload."""
    async with watching(cluster) as watched:
        handle = await watched.start(root={"suspend": True}, queue=True)
        await watched.until(lambda: watched.progress(handle))
        assert watched.stages(handle) == ["created", "queued"]
        about = {"kind": "Workload", "name": f"job-{handle}-1a2b3", "namespace": watched.namespace}
        warning = {"type": "Warning", "reason": "Pending", "message": "no quota left", "involvedObject": about}
        await watched.client.create({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "one"}, **warning})
        await watched.until(lambda: len(watched.progress(handle)) == 2)
        assert watched.progress(handle)[1] == "waiting: not admitted by Kueue yet: no quota left"
        await watched.client.patch(JOBS, handle, {"spec": {"suspend": False}})
        assert await watched.exit(handle) == Exit(Outcome.EXITED, 0)


async def test_a_token_that_is_taken_back_is_told_to_everybody_who_waits(cluster: Cluster) -> None:
    admin = load_access(cluster.kubeconfig)
    wrong = replace(admin, identity=Identity("nobody", token="not-a-token"))
    async with watching(cluster, access=wrong) as watched:
        watched.add("job", uid="u")
        for waiting in (watched.watcher.ended("job"), watched.watcher.started("job"), watched.watcher.gone("job")):
            with pytest.raises(TargetError, match="log in again"):
                await asyncio.wait_for(waiting, 600)
        with pytest.raises(TargetError, match="rejected the credentials"):
            await anext(watched.watcher.events())
        watched.add("another", uid="u")  # after that too
        with pytest.raises(TargetError):
            await asyncio.wait_for(watched.watcher.ended("another"), 600)


async def test_a_missing_right_is_told_with_the_rule_that_grants_it(cluster: Cluster) -> None:
    async with Kubernetes(load_access(cluster.kubeconfig)) as admin:
        access = await _account_without_rights(admin)
    async with watching(cluster, access=access) as watched:
        watched.add("job", uid="u")
        with pytest.raises(TargetError) as caught:
            await asyncio.wait_for(watched.watcher.ended("job"), 600)
        assert caught.value.outcome is Outcome.INFRA
        assert "kind: Role" in str(caught.value)


async def _account_without_rights(admin: Kubernetes) -> Access:
    name = f"weak-{uuid.uuid4().hex[:6]}"
    await admin.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}
    )
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    made = await admin.create(
        request, Tree, resource=SERVICE_ACCOUNTS, name=name, subresource="token", namespace="default"
    )
    return replace(admin.access, identity=Identity(name, token=made.status["token"]))


async def test_thousands_of_jobs_come_and_go_and_nothing_of_them_is_kept(cluster: Cluster) -> None:
    count = 2000 if EVERY else 200
    async with watching(cluster) as watched:
        watcher, client = watched.watcher, watched.client
        created: asyncio.Queue[str] = asyncio.Queue()
        for number in range(count):
            created.put_nowait(f"job-{number:05}")

        async def work() -> None:
            while not created.empty():
                name = created.get_nowait()
                made = await client.create(root_manifest(name, watched.run, pod_spec("true")))
                watched.add(name, made)
                await asyncio.wait_for(watcher.ended(name), 600)
                await client.delete(JOBS, name)
                await asyncio.wait_for(watcher.gone(name), 600)
                watcher.forget(name)

        await asyncio.gather(*(work() for _ in range(40)))
        exits = [event for event in watched.events if event.exit]
        assert len(exits) == count
        assert {event.exit.outcome for event in exits if event.exit} == {Outcome.EXITED}
        feeds = watcher._feeds  # nothing is kept of what is gone
        assert feeds.jobs == {}
        await watched.until(lambda: not feeds._pods and not feeds._roots)
        assert [pod async for pod in client.list(PODS)] == []
