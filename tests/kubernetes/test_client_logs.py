"""Logs that are cut anywhere: no line lost, none doubled. The node is played after the kubelet's own rules."""

import asyncio
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from api_stub import Request, Stub, Wire

from seatrial.kubernetes import Forbidden, Invalid, NotFound
from seatrial.kubernetes.pod import logs


class Entry(NamedTuple):
    """A line of the file that the container runtime writes: a whole line, or a part of one that goes on."""

    at_ns: int
    text: bytes
    whole: bool = True

    @property
    def content(self) -> bytes:
        return self.text + (b"\n" if self.whole else b"")


def stamp(at_ns: int) -> bytes:
    second = datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{second}.{at_ns % 10**9:09d}Z".encode()


def served(entries: list[Entry], since_s: int | None) -> bytes:
    """As the kubelet sends it: older entries are left out one by one, and a stamp stands where a line begins."""
    out, new_line = b"", True
    for entry in entries:
        if since_s is None or entry.at_ns >= since_s * 10**9:
            out += (stamp(entry.at_ns) + b" " if new_line else b"") + entry.content
        new_line = entry.whole
    return out


def seconds(since: str | None) -> int | None:
    return None if since is None else int(datetime.fromisoformat(since).timestamp())


BEGIN_NS = 1_790_000_000 * 10**9


class Node:
    """A container that writes, behind a stub of the API server."""

    def __init__(self, stub: Stub) -> None:
        self.entries: list[Entry] = []
        self.ended = False
        self.started = True
        self.stub, self.cut = stub, False
        self.asked: list[Request] = []
        self.grown = asyncio.Event()
        stub.override = self.answer

    def write(self, *texts: bytes) -> None:
        for text in texts:
            self.entries.append(Entry(BEGIN_NS + len(self.entries) * 7 * 10**6, text))
        self.grown.set()
        self.grown = asyncio.Event()

    def end(self) -> None:
        self.ended = True
        self.write()

    async def answer(self, request: Request, wire: Wire) -> None:
        if not request.path.endswith("/log"):
            state = {"terminated": {"exitCode": 0}} if self.ended else {"running": {}}
            statuses = [{"name": "main", "state": state}]
            wire.json(200, {"spec": {"containers": [{"name": "main"}]}, "status": {"containerStatuses": statuses}})
            return
        self.asked.append(request)
        if not self.started:
            wire.error(400, 'container "main" in pod "p" is waiting to start: ContainerCreating', "BadRequest")
            return
        wire.begin()
        since, sent = seconds(request.query.get("sinceTime")), 0
        while True:
            grown, ended = self.grown, self.ended
            data = served(self.entries, since)
            if data[sent:]:
                wire.chunk(data[sent:])
            sent = len(data)
            await wire.writer.drain()
            if ended or request.query.get("follow") != "true":
                wire.end()
                return
            await grown.wait()


async def read(stub: Stub, **options: bool) -> list[bytes]:
    async with stub.client() as client:
        return [line async for line in client.pod("p").logs(**options)]


def lines_of(count: int) -> Iterator[bytes]:
    return (b"line %d" % number for number in range(count))


async def test_a_log_is_read_to_its_end(stub: Stub) -> None:
    node = Node(stub)
    node.write(*lines_of(1000))
    text = await read(stub)
    assert text == [b"line %d\n" % number for number in range(1000)]


async def test_a_followed_log_survives_cuts_everywhere(stub: Stub) -> None:
    node = Node(stub)
    source = random.Random(4)
    stub.budgets = [source.randint(0, 40_000) for _ in range(100)]

    async def write() -> None:
        for start in range(0, 3000, 50):
            node.write(*(b"line %d" % number for number in range(start, start + 50)))
            await asyncio.sleep(0.001)
        node.end()

    writer = asyncio.ensure_future(write())
    async with stub.client() as client:
        log = client.pod("p").logs(follow=True)
        text = [line async for line in log]
    await writer
    assert text == [b"line %d\n" % number for number in range(3000)]
    assert len(node.asked) > 5


async def test_a_line_without_end_is_cut_words_of_the_node_are_none_and_the_last_needs_no_newline(stub: Stub) -> None:
    node = Node(stub)
    node.write(b"x" * (2 * logs.LINE_BYTES), b"next")
    node.entries.append(Entry(BEGIN_NS + 10**9, b"no newline", whole=False))
    text = await read(stub)
    assert logs.LINE_BYTES <= len(text[0]) < 2 * logs.LINE_BYTES
    assert text[1:] == [b"next\n", b"no newline"]

    async def answer(request: Request, wire: Wire) -> None:
        wire.begin()
        wire.chunk(b'failed to watch file "x": too many open files\n')
        wire.end()

    stub.override = answer
    assert await read(stub) == []


async def test_a_clean_end_while_the_container_runs_is_a_cut(stub: Stub) -> None:
    node = Node(stub)
    node.write(*lines_of(10))
    node.ended = True  # the node ends the stream, as when the kubelet restarts, but says that the container runs
    original = node.answer

    async def answer(request: Request, wire: Wire) -> None:
        if not request.path.endswith("/log") and len(node.asked) < 3:
            node.write(b"later")
            running = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}
            wire.json(200, {"spec": {"containers": [{"name": "main"}]}, "status": running})
            return
        await original(request, wire)

    stub.override = answer
    text = await read(stub, follow=True)
    assert text == [b"line %d\n" % number for number in range(10)] + [b"later\n"] * 2


async def test_a_container_that_does_not_run_yet_is_waited_for_when_followed(stub: Stub) -> None:
    node = Node(stub)
    node.started = False
    waiting = asyncio.ensure_future(read(stub, follow=True))
    await asyncio.sleep(0.3)
    assert len(node.asked) >= 1
    node.started = True
    node.write(b"at last")
    node.end()
    text = await waiting
    assert text == [b"at last\n"]
    node.started = False
    with pytest.raises(Invalid, match="waiting to start"):
        await read(stub)


async def test_a_pod_that_vanishes_ends_the_log_as_incomplete(stub: Stub) -> None:
    node = Node(stub)
    node.write(*lines_of(5))

    async def vanish(request: Request, wire: Wire) -> None:
        wire.error(404, 'pods "p" not found', "NotFound")

    async with stub.client() as client:
        log, text = client.pod("p").logs(follow=True), []
        async for line in log:
            text.append(line)
            if len(text) == 5:
                stub.override = vanish
                node.end()
    assert len(text) == 5
    with pytest.raises(NotFound, match='cannot get pods/log p in namespace ns: pods "p" not found'):
        await read(stub)


async def test_a_missing_right_to_read_logs_is_told_at_once(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        wire.error(403, 'User "u" cannot get resource "pods/log" in API group "" in the namespace "ns"', "Forbidden")

    stub.override = answer
    with pytest.raises(Forbidden, match=r"- pods/log|\[pods/log\]"):
        await read(stub, follow=True)
