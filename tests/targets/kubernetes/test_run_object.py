"""The object of a run, taken over, kept and left: against a server that has that one object."""

import asyncio
import contextlib
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kubernetes.api_stub import Request, Stub, Wire, serving
from seatrial.targets import RunInUse
from seatrial.targets.kubernetes import kind, names, run_object
from seatrial.targets.kubernetes.run_object import Holder, RunObject

DAY_S = 24 * 3600
FAR = {"host": "far", "boot": "another", "pid": 7}


class Server:
    """One Job, and what was asked for of it."""

    def __init__(self) -> None:
        self.job: dict[str, Any] | None = None
        self.version = 1
        self.ahead_s = 0.0  # of this machine

    @property
    def clock(self) -> datetime:
        return datetime.fromtimestamp(time.time() + self.ahead_s, UTC)

    def holds(self, holder: dict[str, Any], age_s: float = 0.0, ttl_s: int = 3 * DAY_S, beat_s: float = 0.0) -> None:
        made = datetime.fromtimestamp(time.time() - age_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        beats = {names.HOLDER: json.dumps(holder), names.RENEWED: f"{self.clock.timestamp() - beat_s:.0f}"}
        metadata = {"name": "seatrial-r", "uid": "u", "creationTimestamp": made, "annotations": beats}
        self.job = {"metadata": metadata, "spec": {"ttlSecondsAfterFinished": ttl_s}}

    async def answer(self, request: Request, wire: Wire) -> None:
        if request.path == "/version":
            wire.json(200, {"gitVersion": "v1"}, Date=format_datetime(self.clock, usegmt=True))
        elif request.method == "GET" and request.path.endswith("/jobs"):
            wire.json(200, {"metadata": {"resourceVersion": "1"}, "items": []})
        elif request.method == "POST" and self.job is None:
            self.job = json.loads(request.body)
            self.job["metadata"]["uid"] = "u"
            self._tell(201, wire)
        elif request.method == "POST":
            wire.error(409, "it is there", "AlreadyExists")
        elif self.job is None:
            wire.error(404, "it is not there", "NotFound")
        elif request.method == "DELETE":
            self.job = None
            wire.json(200, {"kind": "Status", "status": "Success"})
        elif request.method == "PATCH":
            self._patch(json.loads(request.body), wire)
        else:
            self._tell(200, wire)

    def _patch(self, patch: dict[str, Any], wire: Wire) -> None:
        assert self.job is not None
        wanted = patch["metadata"].pop("resourceVersion", "")
        if wanted and wanted != str(self.version):
            wire.error(409, "the object has been modified", "Conflict")
            return
        self.version += 1
        self.job["metadata"]["annotations"] |= patch["metadata"]["annotations"]
        self.job["spec"] |= patch["spec"]
        self._tell(200, wire)

    def _tell(self, status: int, wire: Wire) -> None:
        assert self.job is not None
        self.job["metadata"]["resourceVersion"] = str(self.version)
        wire.json(status, self.job)


@contextlib.asynccontextmanager
async def run_on(server: Server) -> AsyncIterator[RunObject]:
    async with serving(Stub(override=server.answer)) as stub, stub.client() as client:
        yield RunObject(client, kind.options(), "r")


async def test_a_run_that_another_machine_works_on_is_not_removed_by_who_was_refused_it() -> None:
    server = Server()
    server.holds(FAR)
    async with run_on(server) as run:
        with pytest.raises(RunInUse, match="process 7 on far"):
            await run.owner()
        await run.close()
    assert server.job is not None


def test_a_process_is_gone_when_its_number_is_anothers_or_only_its_exit_is_left() -> None:
    me = Holder.me()
    assert not me.gone()
    assert replace(me, start=me.start - 1).gone()
    assert not replace(me, start=0).gone(), "of an earlier version, which did not keep it"
    assert not replace(me, pid=1, start=0).gone(), "of another user, when we are not root"
    assert not replace(me, host="far", start=me.start - 1).gone(), "that cannot be seen from here"
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert replace(me, pid=process.pid).gone()


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
async def test_a_heartbeat_is_written_and_read_by_the_servers_clock(ahead_s: float) -> None:
    server = Server()
    server.ahead_s = ahead_s
    async with run_on(server) as run:
        await run.owner()
        assert server.job is not None
        renewed_s = float(server.job["metadata"]["annotations"][names.RENEWED])
        assert renewed_s - server.clock.timestamp() == pytest.approx(0, abs=900)
        await run.close()
    server.holds(FAR)
    async with run_on(server) as run:
        with pytest.raises(RunInUse):
            await run.owner()


async def test_a_run_that_is_taken_over_is_kept_for_as_long_as_its_jobs_may_live() -> None:
    server = Server()
    server.holds(FAR, age_s=4 * DAY_S, ttl_s=10 * DAY_S, beat_s=3600)
    async with run_on(server) as run:
        await run.owner()
        assert server.job is not None
        assert server.job["spec"]["ttlSecondsAfterFinished"] == pytest.approx(10 * DAY_S, abs=3600)
        await run.close()
    server.holds(FAR, age_s=5 * DAY_S, ttl_s=3 * DAY_S, beat_s=3600)
    async with run_on(server) as run:
        run.cover(2 * DAY_S)
        await run.owner()
        assert server.job is not None
        assert server.job["spec"]["ttlSecondsAfterFinished"] == pytest.approx(9 * DAY_S, abs=3600)
        await run.close()
    assert server.job is None


async def test_of_two_that_take_a_run_over_at_the_same_time_one_gets_it() -> None:
    server = Server()
    server.holds(FAR, beat_s=3600)
    plain = server.answer
    between = asyncio.Event()

    async def another_was_faster(request: Request, wire: Wire) -> None:
        if request.method == "PATCH" and not between.is_set():
            between.set()
            assert server.job is not None
            server.version += 1
            server.job["metadata"]["annotations"] |= {
                names.HOLDER: json.dumps(FAR),
                names.RENEWED: f"{time.time():.0f}",
            }
        await plain(request, wire)

    server.answer = another_was_faster  # type: ignore[method-assign]
    async with run_on(server) as run:
        with pytest.raises(RunInUse):
            await run.owner()
    assert between.is_set()


async def test_who_was_away_for_long_learns_that_another_has_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_object, "BEAT_S", 0.05)
    server = Server()
    async with run_on(server) as run:
        await run.owner()
        assert server.job is not None
        mine = msgspec.json.decode(server.job["metadata"]["annotations"][names.HOLDER])
        server.holds(FAR)
        assert isinstance(await asyncio.wait_for(run.lost, 600), RunInUse)
        await run.close()
    assert server.job is not None
    assert msgspec.json.decode(server.job["metadata"]["annotations"][names.HOLDER]) == FAR != mine
