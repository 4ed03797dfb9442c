"""Watches over connections that are cut anywhere, histories that are compacted, and servers that talk nonsense."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from api_stub import Request, Stub, Wire, serving

from seatrial.kubernetes import (
    ADDED,
    DELETED,
    MODIFIED,
    PODS,
    SYNCED,
    Access,
    Closed,
    Forbidden,
    Kubernetes,
    KubernetesError,
    Object,
    Unreachable,
    WatchEvent,
)


async def take(events: AsyncIterator[WatchEvent[Any]], count: int) -> list[tuple[str, str, str]]:
    """(kind, name, resourceVersion) of the next events."""
    found = []
    for _ in range(count):
        event = await asyncio.wait_for(anext(events), 600)
        meta = event.object.metadata if event.object else None
        found.append((event.kind, meta.name if meta else "", meta.resource_version if meta else ""))
    return found


def names(events: list[tuple[str, str, str]]) -> list[tuple[str, str]]:
    return [(kind, name) for kind, name, _ in events]


async def test_what_is_there_comes_first_then_every_change(stub: Stub) -> None:
    stub.put("a")
    stub.put("b")
    async with stub.client() as client:
        watch = client.watch(PODS)
        events = aiter(watch)
        assert names(await take(events, 3)) == [(ADDED, "a"), (ADDED, "b"), (SYNCED, "")]
        stub.put("c")
        stub.put("a", x="y")
        stub.drop("b")
        assert names(await take(events, 3)) == [(ADDED, "c"), (MODIFIED, "a"), (DELETED, "b")]
        assert {found.metadata.name for found in watch.objects.values()} == {"a", "c"}
        await events.aclose()  # type: ignore[attr-defined]
    assert stub.requests[-1].query["allowWatchBookmarks"] == "true"


async def test_a_stream_cut_at_any_byte_loses_and_doubles_nothing(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection lives some bytes longer than the one before, so that the cuts fall everywhere."""
    monkeypatch.setattr("seatrial.kubernetes.watch.backoff_s", lambda attempt: 0.0)
    async with stub.client() as client:
        watch = client.watch(PODS)
        events = aiter(watch)
        await take(events, 1)
        for number in range(60):
            stub.put(f"pod-{number % 7}", n=str(number))
            if number % 7 == 3:
                stub.drop(f"pod-{number % 7}")
        expected = [(kind.lower(), value["metadata"]["name"], str(version)) for version, kind, value in stub.history]
        stub.budgets = [budget for cut in range(0, 900, 17) for budget in (cut, 700)]
        seen = await take(events, len(expected))
        assert seen == expected
        assert watch.reconnects > 10
        assert watch.gaps == 0
        stub.budgets = []
        stub.put("last")
        assert names(await take(events, 1)) == [(ADDED, "last")]
        await events.aclose()  # type: ignore[attr-defined]


async def test_a_server_that_ends_streams_is_taken_up_again(stub: Stub) -> None:
    stub.watch_ends_after = 2
    async with stub.client() as client:
        events = aiter(client.watch(PODS))
        await take(events, 1)
        for number in range(9):
            stub.put(f"pod-{number}")
        assert [name for _, name, _ in await take(events, 9)] == [f"pod-{number}" for number in range(9)]
        await events.aclose()  # type: ignore[attr-defined]


async def test_after_a_compaction_the_differences_come_once(stub: Stub) -> None:
    for name in ("stays", "changes", "goes", "again"):
        stub.put(name)
    stub.watch_ends_after = 1
    async with stub.client() as client:
        watch = client.watch(PODS)
        events = aiter(watch)
        await take(events, 5)
        stub.put("first")  # ends the stream; nobody listens to what follows
        assert names(await take(events, 1)) == [(ADDED, "first")]
        stub.put("changes", x="y")
        stub.drop("goes")
        stub.drop("again")
        stub.put("again")
        stub.put("new")
        stub.compact()
        found = [await asyncio.wait_for(anext(events), 600) for _ in range(5)]
        assert all(event.relisted for event in found)
        kinds = [(event.kind, event.object.metadata.name) for event in found if event.object]
        assert sorted(kinds) == [
            (ADDED, "again"),
            (ADDED, "new"),
            (DELETED, "again"),
            (DELETED, "goes"),
            (MODIFIED, "changes"),
        ]
        assert kinds.index((DELETED, "again")) < kinds.index((ADDED, "again"))
        assert watch.gaps == 1
        stub.put("stays", x="y")
        assert names(await take(events, 1)) == [(MODIFIED, "stays")]
        assert {value.metadata.name for value in watch.objects.values()} == set(stub.objects)
        await events.aclose()  # type: ignore[attr-defined]


async def test_a_410_within_the_stream_is_a_compaction_too(stub: Stub) -> None:
    said = [True]

    async def answer(request: Request, wire: Wire) -> None:
        if not request.query.get("watch") or not said:
            raise KeyError
        said.clear()
        stub.put("missed")
        wire.begin()
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        wire.chunk(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
        wire.end()

    stub.override = answer
    async with stub.client() as client:
        watch = client.watch(PODS)
        events = aiter(watch)
        assert names(await take(events, 2)) == [(SYNCED, ""), (ADDED, "missed")]
        assert watch.gaps == 1
        await events.aclose()  # type: ignore[attr-defined]


async def test_a_list_that_expires_in_its_middle_forgets_what_it_had(stub: Stub) -> None:
    for number in range(1200):
        stub.put(f"pod-{number}")

    async def answer(request: Request, wire: Wire) -> None:
        if request.query.get("continue") == "500" and "pod-3" in stub.objects:
            stub.drop("pod-3")
            stub.expire_continue = 1
        raise KeyError

    stub.override = answer
    async with stub.client() as client:
        watch = client.watch(PODS)
        events = aiter(watch)
        found = names(await take(events, 1200))
        assert (ADDED, "pod-3") not in found
        assert found[-1] == (SYNCED, "")
        assert len(set(found)) == 1200
        await events.aclose()  # type: ignore[attr-defined]


async def test_bookmarks_move_on_without_an_event(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        if not request.query.get("watch") or request.query["resourceVersion"] != "100":
            raise KeyError
        wire.begin()
        bookmark = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "100000"}}}
        wire.chunk(json.dumps(bookmark).encode() + b"\n")
        wire.end()

    class Strict(Object, frozen=True, kw_only=True):
        spec: dict[str, str]  # a bookmark has none

    stub.override = answer
    stub.oldest = 0
    async with stub.client() as client:
        watch = client.watch(PODS, Strict)
        events = aiter(watch)
        await take(events, 1)
        stub.version = 100_000
        waiting = asyncio.ensure_future(anext(events))
        async with asyncio.timeout(600):
            while watch.resource_version != "100000":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.parametrize(
    "line",
    [
        b"not json at all\n",
        b'{"type":"ADDED"}\n',
        b'{"type":"SURPRISE","object":{"metadata":{}}}\n',
        b"\x00\xff\n",
        b"[]\n",
    ],
)
async def test_nonsense_in_the_stream_is_asked_again_and_at_last_told(stub: Stub, line: bytes) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        if not request.query.get("watch"):
            raise KeyError
        wire.begin()
        wire.chunk(line)
        wire.end()

    stub.override = answer
    async with stub.client() as client:
        events = aiter(client.watch(PODS, patience_s=0.3))
        await take(events, 1)
        with pytest.raises(KubernetesError, match="cannot watch pods in namespace ns: "):
            await take(events, 1)


async def test_nonsense_once_costs_nothing(stub: Stub) -> None:
    nonsense = [b"garbage\n"]

    async def answer(request: Request, wire: Wire) -> None:
        if not request.query.get("watch") or not nonsense:
            raise KeyError
        wire.begin()
        good = json.dumps({"type": "ADDED", "object": stub.put("good")}).encode() + b"\n"
        wire.chunk(good + nonsense.pop())
        wire.end()

    stub.override = answer
    async with stub.client() as client:
        events = aiter(client.watch(PODS))
        await take(events, 1)
        assert names(await take(events, 1)) == [(ADDED, "good")]
        waiting = asyncio.ensure_future(take(events, 1))
        await asyncio.sleep(0.3)
        stub.put("better")
        assert names(await waiting) == [(ADDED, "better")]  # and `good` did not come again
        await events.aclose()  # type: ignore[attr-defined]


async def test_an_object_of_a_megabyte_in_small_chunks_is_one_event(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        if not request.query.get("watch"):
            raise KeyError
        big = {"metadata": {"name": "big", "uid": "u", "resourceVersion": "200", "annotations": {"x": "y" * 1_000_000}}}
        text = json.dumps({"type": "ADDED", "object": big}).encode() + b"\n"
        wire.begin()
        for start in range(0, len(text), 7000):
            wire.chunk(text[start : start + 7000])
            await asyncio.sleep(0)
        await asyncio.sleep(60)

    stub.override = answer
    async with stub.client() as client:
        events = aiter(client.watch(PODS))
        assert names(await take(events, 2)) == [(SYNCED, ""), (ADDED, "big")]
        await events.aclose()  # type: ignore[attr-defined]


async def test_a_line_without_end_is_not_read_into_memory_for_ever(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.kubernetes.watch._LINE_BYTES", 1 << 20)

    async def answer(request: Request, wire: Wire) -> None:
        if not request.query.get("watch"):
            raise KeyError
        wire.begin()
        for _ in range(40):
            wire.chunk(b"x" * (1 << 16))
            await wire.writer.drain()

    stub.override = answer
    async with stub.client() as client:
        events = aiter(client.watch(PODS, patience_s=0))
        await take(events, 1)
        with pytest.raises(KubernetesError, match="a line exceeds"):
            await take(events, 1)


async def test_a_right_that_is_missing_ends_the_watch_at_once(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        wire.error(403, 'User "u" cannot list resource "pods" in API group "" in the namespace "ns"', "Forbidden")

    stub.override = answer
    async with stub.client() as client:
        with pytest.raises(Forbidden, match="lacks permission to list pods in namespace ns"):
            await take(aiter(client.watch(PODS)), 1)
    assert len(stub.requests) == 1


async def test_a_server_that_is_gone_for_too_long_ends_the_watch() -> None:
    async with serving(Stub()) as other:
        client = Kubernetes(Access(other.url, namespace="ns"), patience_s=0)
        events = aiter(client.watch(PODS, patience_s=0.3))
        await take(events, 1)
        waiting = asyncio.ensure_future(take(events, 1))
        await asyncio.sleep(0.1)
    with pytest.raises(Unreachable, match="connection refused"):
        await waiting
    await client.close()


async def test_a_client_that_is_closed_ends_its_watches(stub: Stub) -> None:
    async with stub.client() as client:
        events = aiter(client.watch(PODS))
        await take(events, 1)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.1)
    with pytest.raises(Closed):
        await asyncio.wait_for(waiting, 600)


async def test_a_watch_follows_a_store_that_was_put_back(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        if request.query.get("watch") and int(request.query["resourceVersion"]) > stub.version:
            causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
            status = {"kind": "Status", "code": 504, "reason": "Timeout", "message": "x", "details": {"causes": causes}}
            wire.json(504, status)
            return
        raise KeyError

    stub.override = answer
    stub.watch_ends_after = 1
    async with stub.client() as client:
        events = aiter(client.watch(PODS))
        await take(events, 1)
        stub.put("a")
        await take(events, 1)
        stub.version = 50
        stub.objects.clear()
        stub.history.clear()
        stub.put("b")
        assert names(await take(events, 2)) == [(DELETED, "a"), (ADDED, "b")]
        await events.aclose()  # type: ignore[attr-defined]
