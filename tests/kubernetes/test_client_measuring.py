"""What a client offers to who measures a server: every try with its times, asking once, a pace, nothing kept."""

import asyncio
import itertools
import uuid

import orjson
import pytest
from api_stub import Request, Stub, Wire

from cluster.cluster import Cluster
from seatrial.http.http1 import RequestAttempt
from seatrial.kubernetes import (
    ADDED,
    CONFIG_MAPS,
    DELETED,
    PODS,
    SYNCED,
    ApiError,
    Kubernetes,
    NotFound,
    Unreachable,
    load_access,
)


def pod(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}


def times(attempt: RequestAttempt) -> list[float]:
    stamps = (attempt.queued_s, attempt.sent_s, attempt.first_byte_s, attempt.answered_s)
    return [stamp for stamp in stamps if stamp is not None]


async def test_every_try_has_its_times_and_the_wait_before_the_next(stub: Stub) -> None:
    statuses = [429, 503]

    async def answer(request: Request, wire: Wire) -> None:
        if not statuses:
            raise KeyError
        wire.error(statuses.pop(0), "busy", Retry_After="0")

    stub.override, attempts = answer, []
    async with stub.client() as client:
        await client.create(pod("one"), attempts=attempts)
    assert [attempt.status for attempt in attempts] == [429, 503, 201]
    assert all(len(times(attempt)) == 4 and times(attempt) == sorted(times(attempt)) for attempt in attempts)
    for before, after in itertools.pairwise(attempts):
        assert after.queued_s >= times(before)[-1] + before.wait_s > times(before)[-1]


async def test_asked_once_a_refusal_and_a_cut_are_what_they_are(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        wire.error(429, "busy", Retry_After="0")

    stub.override = answer
    attempts: list[RequestAttempt] = []
    async with stub.client() as client:
        with pytest.raises(ApiError):
            await client.create(pod("one"), retry=False, attempts=attempts)
        assert (len(stub.requests), [one.status for one in attempts]) == (1, [429])
    stub.override, stub.budgets = None, [10]
    async with stub.client() as client:
        with pytest.raises(Unreachable, match="the request may have taken effect"):
            await client.create(pod("two"), retry=False, attempts=attempts)
    assert attempts[1].status == 0
    assert attempts[1].problem
    assert attempts[1].answered_s is None
    assert "two" in stub.objects


async def test_the_wait_for_a_slot_is_not_the_servers(stub: Stub) -> None:
    """Of two requests over one slot the second is sent when the first is answered, and queued long before."""
    let_go = asyncio.Event()

    async def answer(request: Request, wire: Wire) -> None:
        await let_go.wait()
        raise KeyError

    stub.override = answer
    attempts: list[RequestAttempt] = []
    async with stub.client(at_once=1) as client:
        making = [asyncio.create_task(client.create(pod(name), attempts=attempts)) for name in "ab"]
        while len(attempts) < 2 or not stub.requests:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        let_go.set()
        await asyncio.gather(*making)
    first, second = sorted(attempts, key=lambda attempt: attempt.sent_s or 0)
    assert first.answered_s is not None
    assert second.sent_s is not None
    assert second.queued_s < first.answered_s <= second.sent_s


async def test_a_watch_may_keep_nothing(stub: Stub) -> None:
    for name in ("a", "b"):
        stub.put(name)
    stub.watch_ends_after = 1
    events = []
    async with stub.client() as client:
        watch = client.watch(PODS, keep=False)
        async for event in watch:
            assert not watch.objects
            events.append((event.kind, event.object.metadata.name if event.object else "", event.relisted))
            if len(events) == 3:
                stub.drop("a")
            if len(events) == 4:  # the server forgets what happened meanwhile
                stub.drop("b")
                stub.put("c")
                stub.compact()
            if event.kind == SYNCED and event.relisted:
                break
    assert events == [
        (ADDED, "a", False), (ADDED, "b", False), (SYNCED, "", False), (DELETED, "a", False),
        (ADDED, "c", True), (SYNCED, "", True),
    ]  # fmt: skip


async def test_on_a_real_server_bytes_go_in_and_all_goes_out_at_once(real_cluster: Cluster) -> None:
    access, label = load_access(real_cluster.kubeconfig), f"m-{uuid.uuid4().hex[:8]}"
    attempts: list[RequestAttempt] = []
    named = {f"{label}-{number}": {"of": label} for number in range(50)}
    async with Kubernetes(access, at_once=8) as client:
        making = []
        for name, labels in named.items():
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}
            body = orjson.dumps(manifest)
            making.append(client.create(body, resource=CONFIG_MAPS, name=name, retry=False, attempts=attempts))
        await asyncio.gather(*making)
        assert [attempt.status for attempt in attempts] == [201] * 50
        assert all(times(attempt) == sorted(times(attempt)) and len(times(attempt)) == 4 for attempt in attempts)
        await client.delete_some(CONFIG_MAPS, labels=f"of={label}")
        with pytest.raises(NotFound):
            await client.get(CONFIG_MAPS, f"{label}-0")
