"""A server that refuses: what it asks for is honoured, every answer stays visible, and nothing is made twice. By a stub
that is told to misbehave; quotas and webhooks are those of a real one, in test_faults_cluster.py."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubernetes.api_stub import Request, Stub, Wire, serving
from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.driver import Driver, DriverError, Given
from seatrial.kinds.scale.driver.cluster import ClusterWorkloads
from seatrial.kinds.scale.driver.health import gaps, read_lines
from seatrial.kinds.scale.driver.plan import SubmissionPlan
from seatrial.kinds.scale.driver.stages import read_stamps
from seatrial.kinds.scale.driver.submit import SubmissionRecords, Submitter
from seatrial.kinds.scale.driver.watch import Canary, Watched, WatchWork, watching
from seatrial.kinds.scale.followed import followed_pods
from seatrial.kinds.scale.work import WORKLOAD_LABEL, ScaleWork, Submission, WorkloadClass
from seatrial.kubernetes import PODS
from seatrial.targets.kubernetes import kind
from seatrial.targets.kubernetes.owned import ClusterObjects

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"containers": [{"name": "main"}]}}
COUNT = 200
KUBECONFIG = """
{{current-context: c, clusters: [{{name: c, cluster: {{server: "{server}"}}}}], users: [{{name: u, user: {{}}}}],
  contexts: [{{name: c, context: {{cluster: c, user: u, namespace: ns}}}}]}}
"""


@asynccontextmanager
async def place(
    stub: Stub, folder: Path
) -> AsyncIterator[tuple[ClusterWorkloads, SubmissionPlan, Submitter, SubmissionRecords[Submission]]]:
    work = ScaleWork("r", "69b56f04", 1, "p", (WorkloadClass("pod", (POD,)),), COUNT, Arrivals("burst", burst=COUNT))
    plan = SubmissionPlan(work)
    async with stub.client() as client:
        mine = ClusterObjects(client, kind.options(), work.run, work.cell, work.attempt)
        made = ClusterWorkloads(Driver(Given({}, str(folder)), 1), work, plan, mine)
        sender = Submitter(made, folder, asyncio.Event())
        yield made, plan, sender, sender.submitted


def refusing(statuses: dict[str, list[int]], made: Counter[str], retry_after: str = "") -> "Stub":
    """Each object is refused with these before it is made; the name is the key, or all."""
    stub = Stub()

    async def answer(request: Request, wire: Wire) -> None:
        if request.method != "POST" or "dryRun" in request.query:
            if request.method == "POST":
                return wire.json(201, json.loads(request.body))
            raise KeyError
        name = json.loads(request.body)["metadata"]["name"]
        made[name] += 1
        wanted = statuses.get(name, statuses["all"])
        if made[name] <= len(wanted):
            headers = {"Retry_After": retry_after} if retry_after else {}
            return wire.error(wanted[made[name] - 1], "busy", **headers)
        raise KeyError

    stub.override = answer
    return stub


async def test_a_storm_of_429_is_waited_out_and_stays_visible(tmp_path: Path) -> None:
    asked: Counter[str] = Counter()
    async with serving(refusing({"all": [429, 429]}, asked, "0")) as stub, place(stub, tmp_path) as found:
        made, plan, sender, submitted = found
        await made.prepare()
        await sender.open_loop(plan.measured, [0.0] * COUNT, time.monotonic())
    assert set(asked.values()) == {3}, "each was asked for three times"
    assert len(stub.objects) == COUNT
    for one in submitted.all.values():
        assert one.refusals == (429, 429)
        assert one.attempts == 3
        assert one.sent_s is not None
        assert one.acknowledged_s is not None
        assert one.acknowledged_s - one.sent_s > one.waited_s > 0, "the time that the server asked for"


async def test_the_connections_of_a_burst_are_opened_before_it(tmp_path: Path) -> None:
    async with serving(Stub()) as stub, place(stub, tmp_path) as (made, plan, sender, _):
        await made.prepare()
        before = stub.connections
        await sender.open_loop(plan.measured, [0.0] * COUNT, time.monotonic())
        assert stub.connections == before > 1


async def test_workloads_of_a_round_of_a_search_carry_its_label(tmp_path: Path) -> None:
    async with serving(Stub()) as stub, place(stub, tmp_path) as (made, plan, sender, _):
        await made.check()
        planned = plan.round(3, 1)[:2]
        await sender.open_loop(planned, [0.0, 0.0], time.monotonic())
    labels = [one["metadata"]["labels"] for name, one in stub.objects.items() if name != "p-0"]
    assert [one["seatrial/phase"] for one in labels] == ["round-3", "round-3"]
    assert [one["seatrial/workload"] for one in labels] == [str(one.number) for one in planned]


async def test_what_the_server_asks_for_is_waited(tmp_path: Path) -> None:
    asked: Counter[str] = Counter()
    async with serving(refusing({"all": [], "p-7": [429]}, asked, "1")) as stub, place(stub, tmp_path) as found:
        made, plan, sender, submitted = found
        await made.prepare()
        await sender.open_loop(plan.measured[:9], [0.0] * 9, time.monotonic())
    assert submitted.all[7].waited_s >= 1.0
    assert sum(one.waited_s for number, one in submitted.all.items() if number != 7) == 0.0


async def test_a_server_error_is_tried_again_and_one_that_stays_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    asked: Counter[str] = Counter()
    statuses = {"all": [], "p-3": [500, 503], "p-5": [500] * 99}
    async with serving(refusing(statuses, asked)) as stub, place(stub, tmp_path) as found:
        made, plan, sender, submitted = found
        await made.prepare()
        await sender.open_loop(plan.measured[:8], [0.0] * 8, time.monotonic())
    assert submitted.all[3].refusals == (500, 503)
    assert submitted.all[3].acknowledged_s is not None
    assert submitted.all[5].acknowledged_s is None
    assert "busy" in submitted.all[5].problem
    assert set(submitted.all[5].refusals) == {500}
    assert len(stub.objects) == 7


async def test_workloads_are_removed_some_at_a_time_until_none_is_there(tmp_path: Path) -> None:
    stub, asked = Stub(), []

    async def answer(request: Request, wire: Wire) -> None:
        if request.method != "DELETE":
            raise KeyError
        asked.append((request.query["labelSelector"].count("="), int(request.query["limit"])))
        for name in list(stub.objects)[: asked[-1][1]]:
            stub.drop(name)
        wire.json(200, {"kind": "PodList", "metadata": {}, "items": []})

    stub.override = answer
    async with serving(stub), place(stub, tmp_path) as (made, *_):
        await made.prepare()
        for number in range(1200):
            stub.put(f"p-{number}")
        assert await made.clean() == ""
    assert stub.objects == {}
    assert [limit for _, limit in asked] == [500, 500, 500]
    assert all(labels >= 1 for labels, _ in asked), "by their labels: what is somebody else's stays"


async def test_a_template_that_is_refused_is_told_before_anything_is_sent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stub = Stub()

    async def answer(request: Request, wire: Wire) -> None:
        if request.method == "POST":
            return wire.error(422, "spec.containers: Required value", "Invalid")
        raise KeyError

    stub.override = answer
    async with serving(stub), place(stub, tmp_path) as (made, *_):
        with pytest.raises(DriverError, match="rejected the Pod"):
            await made.prepare()
    assert '"note":"refused"' in capfd.readouterr().out
    assert all(request.query.get("dryRun") == "All" for request in stub.requests if request.method == "POST")


async def test_a_change_that_the_watch_never_saw_counts_until_the_next_one(tmp_path: Path) -> None:
    """After an outage the watch lists objects again, and sees only the last of several changes."""
    stamps = tmp_path / "stamps.jsonl"
    stamps.write_text('{"canary":"b","at_s":13.5}\n{"canary":"d","at_s":60.0}\n')
    async with serving(Stub()) as stub, stub.client() as client:
        canary = Canary(ClusterObjects(client, kind.options(), "r", "69b56f04", 1), "p")
        canary._sent = {"a": 10.0, "b": 13.0, "c": 59.0, "d": 59.5, "e": 61.0}
        assert canary.lags(stamps) == [(13.5, 3.5), (13.5, 0.5), (60.0, 1.0), (60.0, 0.5)]


async def test_what_a_watch_missed_when_the_server_had_forgotten_is_censored_and_counted(tmp_path: Path) -> None:
    """By the process that watches, against a server that answers its next watch with 410."""
    own = {"seatrial/run": "r", "seatrial/cell": "69b56f04", "seatrial/attempt": "1"}
    selector, stamps = ",".join(f"{key}={value}" for key, value in own.items()), tmp_path / "stamps.jsonl"
    asked = []

    async def answer(request: Request, wire: Wire) -> None:
        if request.query.get("watch"):
            asked.append(request)
            if len(asked) == 2:  # what it asks for is forgotten
                stub.put("p-1", **own, **{WORKLOAD_LABEL: "1"})
                stub.compact()
        raise KeyError

    async with serving(Stub(watch_ends_after=1, override=answer)) as stub:
        (tmp_path / "kubeconfig").write_text(KUBECONFIG.format(server=stub.url))
        watched = (Watched(PODS, followed_pods(labelled=True)),)
        work = WatchWork(str(tmp_path / "kubeconfig"), None, ("ns",), selector, str(stamps), "p", watched)
        async with watching(work, tmp_path / "watch.json"):
            stub.put("p-0", **own, **{WORKLOAD_LABEL: "0"})  # the last that it sees before the stream ends
            async with asyncio.timeout(600):
                while {one.workload for one in read_stamps(stamps)} != {0, 1}:  # noqa: ASYNC110 - a file
                    await asyncio.sleep(0.02)
    found = {one.workload: one for one in read_stamps(stamps)}
    assert found[0].since_s is None
    assert found[1].since_s == found[0].at_s < found[1].at_s
    assert gaps(read_lines(stamps))[0] == 1
