"""Connections that are open and lead nowhere any more: noticed, and replaced by new ones."""

import asyncio
import uuid
import zlib

import pytest
from api_stub import Request, Stub, Wire
from cutter import cutting

from cluster.cluster import Cluster
from seatrial.http.http1 import RequestAttempt
from seatrial.kubernetes import CONFIG_MAPS, MODIFIED, PODS, SYNCED, Kubernetes, Unreachable, load_access


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.http.http1.SILENT_S", 1.0)
    monkeypatch.setattr("seatrial.kubernetes.watch.SILENCE_S", 2.0)


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"made": name}}}


async def test_over_kept_connections_that_are_dead_everything_is_asked_once_more(real_cluster: Cluster) -> None:
    name = f"dead-{uuid.uuid4().hex[:8]}"
    async with cutting(load_access(real_cluster.kubeconfig)) as cutter, Kubernetes(cutter.access) as client:
        await asyncio.gather(*(client.version() for _ in range(5)))
        assert cutter.freeze() == 5
        attempts: list[RequestAttempt] = []
        await client.create(config_map(name), attempts=attempts)
        assert [bool(attempt.problem) for attempt in attempts] == [True, False]
        assert "no response for 1 s" in attempts[0].problem
        cutter.freeze()
        assert (await client.get(CONFIG_MAPS, name)).metadata.name == name
        cutter.freeze()
        assert await client.delete(CONFIG_MAPS, name)


async def test_a_watch_whose_connection_is_dead_goes_on_over_another(real_cluster: Cluster) -> None:
    name = f"dead-{uuid.uuid4().hex[:8]}"
    access = load_access(real_cluster.kubeconfig)
    async with cutting(access) as cutter, Kubernetes(cutter.access) as far, Kubernetes(access) as near:
        await near.create(config_map(name))
        try:
            async with asyncio.timeout(600):
                async for event in far.watch(CONFIG_MAPS, fields=f"metadata.name={name}"):
                    if event.kind == SYNCED:
                        await asyncio.sleep(0.5)  # until the stream is open
                        assert cutter.freeze()
                        await near.patch(CONFIG_MAPS, name, {"data": {"a": "b"}})
                    if event.kind == MODIFIED:
                        break
        finally:
            await near.delete(CONFIG_MAPS, name)


async def test_streams_that_are_answered_and_give_nothing_lead_to_a_fresh_list(stub: Stub) -> None:
    stub.put("a")

    async def answer(request: Request, wire: Wire) -> None:
        if "watch" not in request.query:
            raise KeyError
        wire.begin()
        wire.end()

    stub.override, events = answer, []
    async with stub.client() as client:
        async for event in client.watch(PODS):
            if event.kind == SYNCED:
                stub.drop("a")
                stub.put("b")
            events.append((event.kind, event.object.metadata.name if event.object else "", event.relisted))
            if len(events) == 4:
                break
    assert events[2:] == [("deleted", "a", True), ("added", "b", True)]
    assert sum("watch" in request.query for request in stub.requests) == 3


async def test_a_body_that_cannot_be_decoded_fails_the_request_at_once(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        packed = zlib.compress(b"{}")[:-3]  # not gzip, and cut
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n" + packed)
        request.headers["connection"] = "close"

    stub.override = answer
    async with stub.client() as client:
        with pytest.raises(Unreachable, match="the answer is not HTTP"):
            async with asyncio.timeout(600):
                await client.get(PODS, "x")
    assert len(stub.requests) == 1
