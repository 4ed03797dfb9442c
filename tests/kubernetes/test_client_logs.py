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
from seatrial.kubernetes.pod.logs import LogLines


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


def some_file(source: random.Random) -> list[Entry]:
    """Stamps mostly grow; two streams may be a little out of order, lines may share a stamp, some lines are long."""
    entries, at = [], BEGIN_NS
    for _ in range(source.randint(0, 40)):
        at += source.choice([0, 0, 1, 10**6, 400 * 10**6, 10**9, 3 * 10**9])
        early = source.choice([0, 0, 0, 300 * 10**6, 900 * 10**6])
        text = source.choice([b"", b"x", b"a longer line", b"2026-01-01T00:00:00Z no stamp", b"y" * 200])
        for _ in range(source.choice([0, 0, 0, 1, 3])):
            entries.append(Entry(at - early, b"p" * source.randint(1, 90), whole=False))
            at, early = at + source.choice([0, 500 * 10**6]), 0
        entries.append(Entry(at - early, text))
    return entries


@pytest.mark.parametrize("begin", range(0, 1000, 250))
def test_however_often_it_is_cut_every_line_comes_once(begin: int) -> None:
    for seed in range(begin, begin + 250):
        source = random.Random(seed)
        entries, lines, got = some_file(source), LogLines(), b""
        for fraction in [*(source.random() for _ in range(source.randint(0, 8))), 1.0]:
            data = served(entries, seconds(lines.since()))
            data = data[: round(len(data) * fraction)]
            size = source.randint(1, 500)
            lines.connected()
            for start in range(0, len(data), size):
                got += b"".join(lines.feed(data[start : start + size]))
        assert got == b"".join(entry.content for entry in entries), f"seed {seed}"
        assert not lines.finish()


def test_a_file_that_was_rotated_away_costs_only_what_is_gone() -> None:
    first = [Entry(BEGIN_NS + n, b"old %d" % n) for n in range(5)]
    second = [Entry(BEGIN_NS + 100 + n, b"new %d" % n) for n in range(5)]
    lines = LogLines()
    lines.connected()
    got = [*lines.feed(served(first, None))]
    lines.connected()
    got += [*lines.feed(served(second, seconds(lines.since())))]
    assert got == [entry.content for entry in first + second]


def test_words_of_the_node_are_no_lines_of_the_container() -> None:
    lines = LogLines()
    lines.connected()
    assert lines.feed(b'failed to watch file "x": too many open files\n') == []


def test_what_stands_at_the_end_without_newline_is_given() -> None:
    lines = LogLines()
    lines.connected()
    assert lines.feed(stamp(BEGIN_NS) + b" no newline") == []
    assert lines.finish() == b"no newline"


def test_a_line_without_end_is_cut_and_the_next_one_comes() -> None:
    lines = LogLines()
    lines.connected()
    given = lines.feed(stamp(BEGIN_NS) + b" ")
    for _ in range(40):
        given += lines.feed(b"x" * (1 << 18))
    given += lines.feed(b"\n" + stamp(BEGIN_NS + 1) + b" next\n")
    assert [len(line) >= logs.LINE_BYTES for line in given] == [True, False]
    assert given[1] == b"next\n"


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
            if ended or not request.query.get("follow"):
                wire.end()
                return
            await grown.wait()


async def read(stub: Stub, **options: bool) -> tuple[list[bytes], logs.Logs]:
    async with stub.client() as client:
        log = client.pod("p").logs(**options)
        return [line async for line in log], log


def lines_of(count: int) -> Iterator[bytes]:
    return (b"line %d" % number for number in range(count))


async def test_a_log_is_read_to_its_end(stub: Stub) -> None:
    node = Node(stub)
    node.write(*lines_of(1000))
    text, log = await read(stub)
    assert text == [b"line %d\n" % number for number in range(1000)]
    assert log.complete


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
    assert log.complete


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
    text, log = await read(stub, follow=True)
    assert text == [b"line %d\n" % number for number in range(10)] + [b"later\n"] * 2
    assert log.complete


async def test_a_container_that_does_not_run_yet_is_waited_for_when_followed(stub: Stub) -> None:
    node = Node(stub)
    node.started = False
    waiting = asyncio.ensure_future(read(stub, follow=True))
    await asyncio.sleep(0.3)
    assert len(node.asked) >= 1
    node.started = True
    node.write(b"at last")
    node.end()
    text, _ = await waiting
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
    assert log.complete is False
    with pytest.raises(NotFound, match='cannot get pods/log p in namespace ns: pods "p" not found'):
        await read(stub)


async def test_a_missing_right_to_read_logs_is_told_at_once(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        wire.error(403, 'User "u" cannot get resource "pods/log" in API group "" in the namespace "ns"', "Forbidden")

    stub.override = answer
    with pytest.raises(Forbidden, match=r"- pods/log|\[pods/log\]"):
        await read(stub, follow=True)
