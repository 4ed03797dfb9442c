"""The log of a container over connections that are cut anywhere: nothing lost, nothing doubled."""

import random

import pytest
from api_stub import Request, Stub, Wire

from seatrial.kubernetes import Forbidden, KubernetesError, NotFound
from seatrial.kubernetes import pod as pod_module

LOG = b"".join(b"line %d\n" % number for number in range(3000))


async def read(stub: Stub) -> bytes:
    async with stub.client() as client:
        return b"".join([block async for block in client.pod("p").log()])


@pytest.fixture
def asked(stub: Stub) -> list[Request]:
    found: list[Request] = []

    async def answer(request: Request, wire: Wire) -> None:
        found.append(request)
        wire.begin()
        for start in range(0, len(LOG), 5000):
            wire.chunk(LOG[start : start + 5000])
            await wire.writer.drain()
        wire.end()

    stub.override = answer
    return found


async def test_a_log_is_read_once_where_nothing_is_cut(stub: Stub, asked: list[Request]) -> None:
    assert await read(stub) == LOG
    assert len(asked) == 1


async def test_a_log_that_is_cut_is_read_anew_and_given_once(
    stub: Stub, asked: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_module, "backoff_s", lambda attempt: 0.0)
    source = random.Random(4)
    stub.budgets = [source.randint(0, 30_000) for _ in range(5)]
    assert await read(stub) == LOG
    assert len(asked) > 1


async def test_one_of_which_nothing_comes_is_given_up(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(request: Request, wire: Wire) -> None:
        wire.begin()
        wire.chunk(b"one\n")
        await wire.writer.drain()
        await wire.writer.wait_closed()

    stub.override = silent
    monkeypatch.setattr(pod_module, "SILENCE_S", 0.2)
    async with stub.client() as client:
        with pytest.raises(KubernetesError, match=r"no data for 0.2 s"):
            async for _ in client.pod("p").log(patience_s=0):
                pass


async def test_a_pod_that_is_gone_and_a_right_that_is_missing_are_told_at_once(stub: Stub) -> None:
    async def vanished(request: Request, wire: Wire) -> None:
        wire.error(404, 'pods "p" not found', "NotFound")

    async def forbidden(request: Request, wire: Wire) -> None:
        wire.error(403, 'User "u" cannot get resource "pods/log" in API group "" in the namespace "ns"', "Forbidden")

    stub.override = vanished
    with pytest.raises(NotFound, match='cannot get pods/log p in namespace ns: pods "p" not found'):
        await read(stub)
    stub.override = forbidden
    with pytest.raises(Forbidden, match=r"- pods/log|\[pods/log\]"):
        await read(stub)
