"""What the Kubernetes target promises beyond the contract of all targets."""

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cut import cut_line
from on_cluster import job, nothing_left, objects, opened

from cluster.cluster import Cluster
from seatrial.job import Input, Limits, Outcome, Resources, Stage
from seatrial.targets import RunInUse, TargetError
from targets.contract import log_of, until_exit

pytestmark = pytest.mark.cluster


async def test_a_job_runs_under_the_restricted_standard_and_leaves_nothing(
    real_cluster: Cluster, namespace: str
) -> None:
    async with opened(real_cluster, namespace) as target:
        handle = await target.submit(
            job("id -u; pwd; echo $HOME", resources=Resources(cpu=0.5, memory_bytes=64 << 20)), {}
        )
        events = await until_exit(target, handle)
        assert events[-1].exit is not None
        assert (events[-1].exit.outcome, events[-1].exit.code) == (Outcome.EXITED, 0)
        assert events[-1].hosts == ("real-0",)
        assert b"\n1000\n/seatrial/volume/work\n/seatrial/volume/home\n" in await log_of(target, handle)
        await target.remove(handle)
    await nothing_left(real_cluster, namespace)


async def test_every_stage_has_its_time_source_and_uncertainty(real_cluster: Cluster, namespace: str) -> None:
    async with opened(real_cluster, namespace) as target:
        handle = await target.submit(job("sleep 0.2"), {})
        times = {event.time.stage: event.time for event in await until_exit(target, handle) if event.time}
        assert set(times) >= {Stage.CREATED, Stage.QUEUED, Stage.SCHEDULED, Stage.STARTED, Stage.FINISHED}
        assert all(time.source and time.uncertainty_s >= 0 for time in times.values())
        assert times[Stage.CREATED].source == "submitter"
        await target.remove(handle)


async def test_a_secret_is_in_a_secret_of_the_job_and_nowhere_else(real_cluster: Cluster, namespace: str) -> None:
    value = f"hush-{uuid.uuid4().hex}"
    async with opened(real_cluster, namespace) as target:
        handle = await target.submit(job("sleep 30", secrets={"TOKEN": "token"}), {"TOKEN": value})
        listed = json.loads(
            real_cluster.kubectl("get", "jobs,pods,configmaps,services", "-n", namespace, "-o", "json").stdout
        )
        assert value not in json.dumps(listed)
        secret = json.loads(real_cluster.kubectl("get", "secrets", "-n", namespace, "-o", "json").stdout)["items"][0]
        root = names(listed, "Job", "seatrial/part=job")
        assert secret["metadata"]["ownerReferences"][0]["name"] in root
        await target.remove(handle)
    await nothing_left(real_cluster, namespace)


def names(listed: dict[str, Any], kind: str, label: str) -> list[str]:
    key, _, value = label.partition("=")
    items = [one["metadata"] for one in listed["items"] if one["kind"] == kind]
    return [one["name"] for one in items if one.get("labels", {}).get(key) == value]


async def test_deleting_the_runs_one_object_deletes_all_of_it(real_cluster: Cluster, namespace: str) -> None:
    async with opened(real_cluster, namespace) as target:
        wanted = job("sleep 300", secrets={"TOKEN": "token"}, inputs=(Input(__file__, "test.py"),))
        handle = await target.submit(wanted, {"TOKEN": "hush-hush"})
        await asyncio.to_thread(
            real_cluster.kubectl, "delete", "jobs", "-n", namespace, "-l", "seatrial/part=run", "--wait=false"
        )
        ended = (await until_exit(target, handle))[-1].exit
        assert ended is not None
        assert ended.outcome is Outcome.INFRA
        assert "deleted" in ended.message
    await nothing_left(real_cluster, namespace)


async def test_inputs_are_where_the_job_expects_them_and_shared_by_the_jobs_of_a_run(
    real_cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    folder = tmp_path / "workspace"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "data.bin").write_bytes(bytes(range(256)) * 8000)
    (folder / "run.sh").write_text("#!/bin/sh\nwc -c < deep/data.bin\n")
    (folder / "run.sh").chmod(0o755)
    inputs = (Input(str(folder), "."),)
    async with opened(real_cluster, namespace) as target:
        first = job("./run.sh", inputs=inputs)
        second = job("ls deep", inputs=inputs, run=first.run)
        second = msgspec.structs.replace(second, name=f"{first.run}-2")
        handles = [await target.submit(one, {}) for one in (first, second)]
        made = objects(real_cluster, namespace)
        assert len([name for name in made if "inputs" in name]) == 1
        codes = {}
        async for event in target.watch():
            if event.exit is not None:
                codes[event.handle] = event.exit.code
            if len(codes) == 2:
                break
        assert codes == dict.fromkeys(handles, 0)
        assert b"\n2048000\n" in await log_of(target, handles[0])
        for handle in handles:
            await target.remove(handle)


async def test_an_image_without_python_runs_plain_commands(real_cluster: Cluster, namespace: str) -> None:
    async with opened(real_cluster, namespace) as target:
        handle = await target.submit(job("echo plain; exit 4", "echo on", image="localhost/busybox:1"), {})
        ended = (await until_exit(target, handle))[-1].exit
        assert ended is not None
        assert (ended.outcome, ended.code) == (Outcome.EXITED, 4)
        log = await log_of(target, handle)
        assert b"plain\n" in log
        assert b"on\n" in log
        await target.remove(handle)


async def test_running_out_of_memory_is_told_as_that(real_cluster: Cluster, namespace: str) -> None:
    async with opened(real_cluster, namespace) as target:
        eat = "python3 -c 'x = bytearray(300 << 20)'"
        handle = await target.submit(job("echo before", eat, resources=Resources(memory_bytes=96 << 20)), {})
        await until_exit(target, handle)
        into = Path(f"/tmp/{uuid.uuid4().hex}")
        assert await target.fetch(handle, "records.jsonl", into)
        assert b'"outcome":"memory"' in into.read_bytes()
        into.unlink()
        await target.remove(handle)


async def test_what_the_server_refuses_is_refused_before_anything_runs(real_cluster: Cluster, namespace: str) -> None:
    template = {"spec": {"hostNetwork": "sure"}}
    async with opened(real_cluster, namespace, template=template) as target:
        with pytest.raises(TargetError, match="hostNetwork") as caught:
            await target.verify(job("true"))
        assert caught.value.outcome is Outcome.REFUSED
    assert objects(real_cluster, namespace) == []


async def test_what_nobody_collects_ends_by_itself_and_is_removed(real_cluster: Cluster, namespace: str) -> None:
    """The pod, which would hold its GPUs, goes first; then its job, with all that it owned."""
    async with opened(real_cluster, namespace, keep="1s") as target:
        await target.submit(job("true", secrets={"TOKEN": "token"}), {"TOKEN": "hush-hush"})
    async with asyncio.timeout(600):
        while any("pod/" in name or "secret/" in name for name in objects(real_cluster, namespace)):  # noqa: ASYNC110
            await asyncio.sleep(0.5)


async def test_a_run_that_another_machine_works_on_is_left_alone(real_cluster: Cluster, namespace: str) -> None:
    wanted = job("sleep 60")
    async with opened(real_cluster, namespace) as target:
        handle = await target.submit(wanted, {})
        patch = {"metadata": {"annotations": {"seatrial/holder": json.dumps({"host": "far", "boot": "b", "pid": 7})}}}
        await asyncio.to_thread(
            real_cluster.kubectl, "patch", "job", f"seatrial-{wanted.run}", "-n", namespace, "--type=merge", "-p",
            json.dumps(patch),
        )  # fmt: skip
        async with opened(real_cluster, namespace) as other:
            with pytest.raises(RunInUse, match="process 7 on far"):
                await other.adopt(handle)
            assert [found.in_use for found in await other.list()] == [True]
        await target.remove(handle)


async def test_a_quota_of_objects_that_is_full_is_waited_for_and_one_that_is_too_small_is_not(
    cluster: Cluster, fake_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.targets.kubernetes.target.ROOM_S", 0.2)

    def kubectl(*args: str) -> None:
        cluster.kubectl("-n", fake_namespace, *args)

    def allow(jobs: int) -> None:
        kubectl("patch", "quota", "q", "-p", json.dumps({"spec": {"hard": {"count/jobs.batch": str(jobs)}}}))

    kubectl("create", "job", "other", "--image=x")
    kubectl("create", "quota", "q", "--hard=count/jobs.batch=0")
    await until_allowed(cluster, fake_namespace, 0)
    async with opened(cluster, fake_namespace) as target:
        with pytest.raises(TargetError, match="exceeded quota") as caught:
            await target.submit(job("true"), {})
        assert caught.value.outcome is Outcome.REFUSED
        allow(1)
        await until_allowed(cluster, fake_namespace, 1)
        waiting = asyncio.create_task(target.submit(job("true"), {}))
        with pytest.raises(TargetError, match=r"the namespace's quota was full for 1 s: .*exceeded quota") as caught:
            await target.submit(job("true", limits=Limits(queue_s=1)), {})
        assert caught.value.outcome is Outcome.QUEUE
        assert not waiting.done()
        allow(9)
        await target.remove(await waiting)


async def until_allowed(cluster: Cluster, namespace: str, jobs: int) -> None:
    """Until the server refuses one by the new bound. A controller sets it: before, the old one holds, or none."""
    one_more = ("-n", namespace, "create", "job", "another", "--image=x", "--dry-run=server")

    def refused() -> str:
        return cluster.kubectl(*one_more, check=False).stderr

    async with asyncio.timeout(600):
        while f"limited: count/jobs.batch={jobs}" not in await asyncio.to_thread(refused):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_a_way_that_freezes_open_connections_delays_a_job_and_loses_nothing_of_it(
    real_cluster: Cluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.http.http1.SILENT_S", 1.0)
    monkeypatch.setattr("seatrial.kubernetes.watch.SILENCE_S", 2.0)
    async with (
        cut_line(real_cluster, tmp_path) as (kubeconfig, way),
        opened(real_cluster, namespace, kubeconfig=kubeconfig) as target,
    ):
        waits = "while ! test -e /tmp/go; do sleep 0.1; done; echo done > $SEATRIAL_FILES/kept"
        wanted = job(waits)
        handle = await target.submit(wanted, {})
        async for event in target.watch():
            if event.time is not None and event.time.stage is Stage.STARTED:
                break
        assert way.freeze()
        pod = target._watcher.pods(handle)[0].name
        await asyncio.to_thread(
            real_cluster.kubectl, "-n", namespace, "exec", pod, "-c", "trial", "--", "touch", "/tmp/go"
        )
        ended = (await until_exit(target, handle))[-1].exit
        assert ended is not None
        assert (ended.outcome, ended.code) == (Outcome.EXITED, 0)
        way.freeze()
        assert await target.fetch(handle, "files", tmp_path / "files")
        assert (tmp_path / "files/kept").read_text() == "done\n"
        way.freeze()
        await target.remove(handle)


async def test_over_a_slow_way_that_is_cut_a_job_loses_nothing(
    real_cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    async with (
        cut_line(real_cluster, tmp_path) as (kubeconfig, way),
        opened(real_cluster, namespace, kubeconfig=kubeconfig) as target,
    ):
        way.delay_s = 0.2
        text = "seq 1 50000; head -c 300000 /dev/zero > $SEATRIAL_FILES/kept"
        handle = await target.submit(job(text), {})
        async for event in target.watch():
            if event.time is not None and event.time.stage is Stage.STARTED:
                break
        way.cut()
        live = b"".join([block async for block in target.logs(handle, follow=True)])
        ended = (await until_exit(target, handle))[-1].exit
        assert ended is not None
        assert (ended.outcome, ended.code) == (Outcome.EXITED, 0)
        lines = [f"{number}" for number in range(1, 50001)]
        assert [line for line in live.decode().splitlines() if line.isdigit()] == lines
        way.cut()
        assert await target.fetch(handle, "files", tmp_path / "files")
        assert (tmp_path / "files/kept").stat().st_size == 300_000
        await target.remove(handle)
    assert way.cuts >= 1
