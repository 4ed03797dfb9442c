"""A driver beside its server: it reaches it by the address that it was given, and records what the way adds."""

import asyncio
import json
import os
from collections.abc import AsyncIterator

import pytest

from seatrial.job import Peer
from seatrial.kinds.driver import Driver, DriverError, Given


@pytest.fixture
async def address() -> AsyncIterator[str]:
    listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    listening.close()


async def test_a_port_that_is_reached_straight_needs_no_target(address: str) -> None:
    """The kind of target is none that there is: it would be an error to open it."""
    reading, writing = os.pipe()
    peer = Peer("server", "gpus", "no-such-kind", {}, "no-such-handle", {"http": address})
    driver = Driver(Given({}, "/nowhere"), writing, peer)
    async with driver.endpoint("http") as given:
        assert (given, given.tls) == (address, False)
    os.close(writing)
    with open(reading) as notes:
        note = json.loads(notes.read())
    assert (note["note"], note["port"], note["route"]) == ("endpoint", "http", "straight, on target gpus")
    assert 0 < note["overhead_s"] <= note["overhead_p99_s"]


async def test_without_a_server_before_it_a_driver_has_no_endpoint() -> None:
    with pytest.raises(DriverError, match="SEATRIAL_PEER is not set"):
        async with Driver(Given({}, "/nowhere"), -1).endpoint("http"):
            pass
