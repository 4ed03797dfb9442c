"""The local target keeps the contract."""

import sys
from pathlib import Path

import pytest
from contract import Contract, Site

from seatrial.targets.local import kind


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("SEATRIAL_STATE", str(tmp_path / "state"))
    shared = tmp_path / "shared"
    shared.mkdir()
    submitter = [sys.executable, str(Path(__file__).with_name("local_submitter.py"))]
    return Site(
        lambda: kind.open("here", kind.options()),
        shared,
        submitter,
        listen_on="127.0.0.1",
        servers=10,
        jobs_reach_endpoints=True,
    )


class TestLocal(Contract):
    pass
