"""A driver beside its server: it reaches it by the address that it was given, and records what the way adds."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seatrial import plugins
from seatrial.job import Peer
from seatrial.kinds.driver import Driver, DriverError, Given
from seatrial.kinds.driver.__main__ import main


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


def test_an_error_of_several_lines_is_one_line_so_that_its_cause_is_no_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def drive(driver: Driver) -> None:
        raise DriverError('namespaces "x" not found\nrun `kubectl create namespace x`')

    monkeypatch.setattr(plugins, "drivers", lambda: {"any": drive})
    monkeypatch.setenv("SEATRIAL_NOTES_FD", "1")
    (tmp_path / "given.json").write_text(json.dumps({"work": {}, "files": str(tmp_path)}))
    assert main(["any", str(tmp_path / "given.json")]) == 1
    assert capsys.readouterr().err == 'namespaces "x" not found; run `kubectl create namespace x`\n'


async def test_without_a_server_before_it_a_driver_has_no_endpoint() -> None:
    with pytest.raises(DriverError, match="SEATRIAL_PEER is not set"):
        async with Driver(Given({}, "/nowhere"), -1).endpoint("http"):
            pass
