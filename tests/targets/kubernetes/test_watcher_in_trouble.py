"""The watcher while servers, ways and nodes fail under it: no event is lost, none comes twice, nothing is guessed."""

import asyncio
import json
import uuid
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from watched import PATIENT, SHORT, Watched, reports, watching

from cluster.cluster import Cluster, up
from cluster.errors import Unavailable
from kubernetes.api_stub import Request, Stub, Wire, serving
from kubernetes.cutter import cutting
from seatrial.job import Event, Exit, Outcome, Stage, StageTime
from seatrial.kubernetes import NODES, Kubernetes, KubernetesError, Tree, load_access
from seatrial.targets.kubernetes import names
from seatrial.targets.kubernetes.watch.jobs import SUBMITTER
from seatrial.targets.kubernetes.watch.objects import TrackedJob
from seatrial.targets.kubernetes.watch.watcher import JobWatcher

ALL_STAGES = ["created", "queued", "scheduled", "started", "finished"]


@pytest.mark.cluster
async def test_a_way_that_is_cut_again_and_again_loses_and_doubles_nothing(cluster: Cluster) -> None:
    access = load_access(cluster.kubeconfig)
    async with (
        cutting(access) as cutter,
        watching(cluster) as watched,
        Kubernetes(replace(cutter.access, namespace=watched.namespace)) as far,
    ):
        over = Watched(watched.client, watched.namespace, JobWatcher(far), run=watched.run)
        reading = asyncio.create_task(over.read())
        cutter.least_bytes, cutter.most_bytes = 8_000, 40_000
        handles = [await over.start() for _ in range(40)]
        for handle in handles:
            assert await over.exit(handle) == Exit(Outcome.EXITED, 0)
            assert over.stages(handle) == ALL_STAGES
        assert cutter.cuts > 3
        await over.watcher.close()
        await reading


@pytest.mark.cluster
async def test_servers_that_are_started_anew_and_nodes_that_are_lost_are_told_apart(tmp_path: Path) -> None:
    try:
        made = await asyncio.to_thread(up, f"trouble-{uuid.uuid4().hex[:6]}", kubelet=True, place=tmp_path)
    except Unavailable as error:
        pytest.skip(f"no cluster here: {error.what}")
    with made:
        async with watching(made, structs.replace(PATIENT, lost_s=4.0)) as watched:
            await _api_server_anew(watched, made)
            await _node_out_of_reach(watched, made)


async def _api_server_anew(watched: Watched, made: Cluster) -> None:
    handle = await watched.start("sleep 4; " + reports("exited", 3, "after all") + "exit 3")
    await watched.until_running(handle)
    await asyncio.to_thread(made.kill, "apiserver")
    await asyncio.to_thread(up, made.name, place=made.folder.parent)
    assert await watched.exit(handle) == Exit(Outcome.EXITED, 3, message="after all")
    assert watched.stages(handle) == ALL_STAGES


async def _node_out_of_reach(watched: Watched, made: Cluster) -> None:
    """One that the taint of its node ends is lost; another that tolerates it comes back and ends well."""
    taint = "seatrial.test/lost"  # where all nodes are silent, Kubernetes sets none by itself
    doomed = await watched.start("sleep 3600")
    survivor = await watched.start(
        "while [ ! -e /tmp/go ]; do sleep 0.2; done; " + reports("exited", 0, "back"),
        tolerations=[{"key": taint, "operator": "Exists"}],
    )
    for handle in (doomed, survivor):
        await watched.until_running(handle)
    await asyncio.to_thread(made.connect_node, False)
    try:
        async for event in watched.client.watch(NODES, Tree):  # while it is only silent nothing is decided
            if event.object is not None and _ready(event.object) != "True":
                break
        assert not any(event.exit for handle in (doomed, survivor) for event in watched.of(handle))
        await asyncio.to_thread(made.kubectl, "taint", "node", "real-0", f"{taint}=yes:NoExecute")
        found = await watched.exit(doomed)
    finally:
        await asyncio.to_thread(made.connect_node, True)
    assert found.outcome is Outcome.LOST
    assert "node real-0 was lost or tainted" in found.message
    assert "node real-0 does not answer, so the job may still be running" in found.message
    assert not any(event.exit for event in watched.of(survivor))
    pod = watched.watcher.pods(survivor)[0].name
    async with asyncio.timeout(600):
        while not await _touch(watched, pod):  # noqa: ASYNC110 - the way to the node needs a moment
            await asyncio.sleep(0.2)
    assert await watched.exit(survivor) == Exit(Outcome.EXITED, 0, message="back")


async def _touch(watched: Watched, pod: str) -> bool:
    trial = watched.client.pod(pod, "trial", namespace=watched.namespace)
    try:
        return (await trial.run(["touch", "/tmp/go"])).exit_code == 0
    except KubernetesError:
        return False


def _ready(node: Tree) -> str:
    return next(str(one["status"]) for one in node.status["conditions"] if one["type"] == "Ready")


class Stores(Stub):
    """A store for each resource behind one address."""

    def __init__(self) -> None:
        super().__init__()
        self.stores = {kind: Stub() for kind in ("pods", "jobs", "events")}

    async def answer(self, request: Request, wire: Wire) -> None:
        kind = next((kind for kind in self.stores if kind in request.path.split("/")), "")
        if not kind:  # of namespaces and nodes nothing may be read
            return wire.error(403, "it may not be read", "Forbidden")
        after = request.path.partition(f"/{kind}")[2]
        path = f"/api/v1/namespaces/ns/{kind}{after}"  # as that of all core resources
        await self.stores[kind].answer(replace(request, path=path), wire)

    def lose_history(self, kind: str) -> None:
        """Whoever watches is told that the server cannot go on from where they are."""
        store = self.stores[kind]
        store.compact()
        store.version += 1
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        store._happened("ERROR", gone)

    def put_object(self, kind: str, name: str, **parts: Any) -> dict[str, Any]:
        """One with more than metadata, told as one change."""
        store = self.stores[kind]
        labels = names.job_labels("run", "job", "cell", 1, "job" if kind == "jobs" else "pod")
        made = store.put(name, **labels)
        made.update(json.loads(json.dumps(parts)))
        made["metadata"]["creationTimestamp"] = "2020-11-16T05:00:00Z"
        return made


@asynccontextmanager
async def _followed(stores: Stores) -> Any:
    events: list[Event] = []
    async with stores.client() as client:
        watcher = JobWatcher(client, patience=SHORT)

        async def read() -> None:
            async for event in watcher.events():
                events.append(event)

        reading = asyncio.create_task(read())
        try:
            yield watcher, events
        finally:
            await watcher.close()
            await reading


def _status(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "trial", "state": state}]}


async def test_what_happened_while_history_was_lost_is_told_from_what_is_found() -> None:
    async with serving(Stores()) as made:
        assert isinstance(made, Stores)
        root = made.put_object("jobs", "job", spec={"suspend": False})
        made.put_object("pods", "job-0-abcde", spec={"nodeName": ""}, status={"phase": "Pending"})
        async with _followed(made) as (watcher, events):
            created = StageTime(Stage.CREATED, 0.0, "api-server")
            watcher.add("job", TrackedJob("job", "run", root["metadata"]["uid"], 1, created))
            await _until(lambda: len(events) == 2)
            # While nobody looks, it comes to its end, and how is no longer in the history.
            ended = {"exitCode": 0, "startedAt": "2020-11-16T05:00:05Z", "finishedAt": "2020-11-16T05:00:07Z"}
            made.put_object("pods", "job-0-abcde", spec={"nodeName": "n"}, status=_status(terminated=ended))
            made.lose_history("pods")
            await asyncio.wait_for(watcher.ended("job"), 600)
            times = {event.time.stage.value: event.time for event in events if event.time}
            assert list(times) == ALL_STAGES
            assert [times[stage].source for stage in ("started", "finished")] == ["kubelet", "kubelet"]
            assert times["finished"].wall_s - times["started"].wall_s == 2.0
            assert len([event for event in events if event.exit]) == 1


async def test_a_pod_that_went_while_history_was_lost_has_ended() -> None:
    async with serving(Stores()) as made:
        assert isinstance(made, Stores)
        root = made.put_object("jobs", "job", spec={"suspend": False})
        running = _status(running={"startedAt": "2020-11-16T05:00:05Z"})
        made.put_object("pods", "job-0-abcde", spec={"nodeName": "n"}, status=running)
        async with _followed(made) as (watcher, events):
            created = StageTime(Stage.CREATED, 0.0, "api-server")
            watcher.add("job", TrackedJob("job", "run", root["metadata"]["uid"], 1, created))
            await asyncio.wait_for(watcher.started("job"), 600)
            made.stores["pods"].drop("job-0-abcde")
            made.lose_history("pods")
            await asyncio.wait_for(watcher.ended("job"), 600)
            found = events[-1].exit
            assert found is not None
            assert found.outcome is Outcome.INFRA
            assert "pod job-0-abcde on n was deleted" in found.message


async def test_a_root_that_went_before_anybody_watched_is_known_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when its pod went last, which only then shows that all of it is gone."""
    monkeypatch.setattr("seatrial.targets.kubernetes.watch.feeds.ON_ITS_WAY_S", 1e9)
    async with serving(Stores()) as made:
        assert isinstance(made, Stores)
        made.put_object("pods", "job-0-abcde", spec={"nodeName": "n"}, status={"phase": "Pending"})
        async with _followed(made) as (watcher, _):
            created = StageTime(Stage.CREATED, 0.0, SUBMITTER)
            watcher.add("job", TrackedJob("job", "run", "uid", 1, created))
            await _until(lambda: watcher.pods("job"))
            made.stores["pods"].drop("job-0-abcde")
            await asyncio.wait_for(watcher.ended("job"), 600)
            await asyncio.wait_for(watcher.gone("job"), 600)
            watcher.forget("job")
            watcher.add("job", TrackedJob("job", "run", "uid", 1, created))
            await asyncio.wait_for(watcher.gone("job"), 600)


async def _until(holds: Any) -> None:
    async with asyncio.timeout(600):
        while not holds():  # noqa: ASYNC110 - what is waited for is in a list
            await asyncio.sleep(0.01)
