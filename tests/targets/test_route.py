"""The way to a port: what answers is waited for, what never does is an error, and round trips are timed."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from seatrial.targets import TargetError
from seatrial.targets import route as way
from seatrial.targets.route import accepts, connection, gateway_leads_on, measured, stays_open, until_answered


@pytest.fixture
async def closing() -> AsyncIterator[str]:
    """Accepts, and closes at once: what a way looks like that leads nowhere."""
    listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    listening.close()


async def test_what_answers_later_is_waited_for() -> None:
    problems = iter(["refused", "refused", ""])

    async def attempt() -> str:
        return next(problems)

    await until_answered(attempt, "port http")
    assert list(problems) == []


async def test_what_never_answers_is_an_error_with_the_last_problem() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen: no other process can take its port
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(TargetError, match=r"port http did not answer within 0 s: .*Connect call failed"):
            await until_answered(lambda: accepts(address), "port http", within_s=0)


async def test_a_way_that_closes_every_connection_leads_nowhere(closing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(way, "CLOSED_S", 120.0)  # of which it takes nothing
    through = asyncio.Event()
    for _ in ("before it is through", "after that"):
        assert await stays_open(closing, through) == "connections are closed immediately"
        through.set()
    assert "disconnected" in await gateway_leads_on(f"http://{closing}/")


async def test_the_least_that_a_way_adds_is_the_median_of_round_trips(closing: str) -> None:
    times = iter([0.5] + [0.001] * 97 + [0.2, 0.3])

    async def trip() -> float:
        return next(times)

    found = await measured("a:1", "way", trip)
    assert (found, found.route, found.overhead_s, found.overhead_p99_s) == ("a:1", "way", 0.001, 0.3)
    assert await connection(closing) > 0
