"""The log of a job, live: whole across cut connections, with every container and host in it."""

import asyncio
from pathlib import Path

import pytest
from cut import cut_line
from on_cluster import job, opened

from cluster.cluster import Cluster
from seatrial.job import Stage
from targets.contract import log_of, until, until_exit, until_stage

pytestmark = pytest.mark.cluster
LINES, BATCH, BETWEEN_CUTS = 1_000_000, 100_000, 37_000
# About 30 MB: more than the log keeps, and more than fits between two cuts. However slow its reader is, it is never
# further ahead than the log keeps: it waits to hear that the batch before the last was read.
WRITER = f"""python3 -c '
import os, sys, time
for n in range({LINES}):
    if n % {BATCH} == 0:
        sys.stdout.flush()
        while n >= 2 * {BATCH} and not os.path.exists("/tmp/read-%d" % (n // {BATCH} - 2)):
            time.sleep(0.05)
    sys.stdout.write("line %08d of a training run\\n" % n)
'"""


async def test_of_a_million_lines_none_is_lost_and_none_comes_twice_over_cut_connections(
    real_cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    async with cut_line(real_cluster, tmp_path) as (kubeconfig, line):

        def read(batch: int) -> None:
            pod = target._watcher.pods(handle)[0].name
            touch = ("exec", pod, "-c", "trial", "--", "touch", f"/tmp/read-{batch}")
            real_cluster.kubectl("-n", namespace, *touch)

        async with opened(real_cluster, namespace, kubeconfig=kubeconfig) as target:
            handle = await target.submit(job(WRITER), {})
            expected, rest = 0, b""
            async for block in target.logs(handle, follow=True):
                *lines, rest = (rest + block).split(b"\n")
                for text in lines:
                    if text.startswith(b"line "):
                        assert text == b"line %08d of a training run" % expected
                        expected += 1
                        if expected % BETWEEN_CUTS == 0:
                            line.cut()
                        if expected % BATCH == 0 and expected + BATCH < LINES:
                            await asyncio.to_thread(read, expected // BATCH - 1)
            assert expected == LINES
            assert line.cuts >= 5
            assert (await until_exit(target, handle))[-1].exit.code == 0  # type: ignore[union-attr]
            await target.remove(handle)


async def test_the_logs_of_containers_that_the_template_adds_are_part_of_it(
    real_cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    secure = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    side = {
        "name": "side", "image": "localhost/busybox:1", "imagePullPolicy": "Never",
        "command": ["sh", "-c", "echo from the side; nc -l -p 8999"], "securityContext": secure,
    }  # fmt: skip
    template = {"spec": {"containers": [side]}}
    # Containers start one after the other: the trial ends when the other has said what it has to say.
    meets = "import socket; socket.create_connection(('127.0.0.1', 8999), 60)"
    async with opened(real_cluster, namespace, template=template) as target:
        wanted = job(f'until python3 -c "{meets}" 2> /dev/null; do sleep 0.1; done; echo from the trial')
        handle = await target.submit(wanted, {})
        live = b"".join([block async for block in target.logs(handle, follow=True)])
        await until_exit(target, handle)
        assert await target.fetch(handle, "log.txt", tmp_path / "log.txt")
        for log in (live, (tmp_path / "log.txt").read_bytes(), await log_of(target, handle)):
            assert b"(side) from the side\n" in log
            assert b"from the trial\n" in log
        await target.remove(handle)


async def test_the_log_of_a_pod_that_ended_before_we_came_is_there(
    real_cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Its keeper has left: the last of what Kubernetes itself has of it."""
    waits = "while ! test -e /tmp/go; do sleep 0.1; done; echo the last words; exit 3"
    async with opened(real_cluster, namespace, keep="1s") as target:
        handle = await target.submit(job(waits), {})
        await until_stage(target, Stage.STARTED, handle)
        pod, root = target._watcher.pods(handle)[0].name, handle.rpartition("/")[2]
    # It would be removed a second after its end, and we may come later than that.
    stays = ("patch", "job", root, "--type=merge", "-p", '{"spec": {"ttlSecondsAfterFinished": 3600}}')
    for command in (stays, ("exec", pod, "-c", "trial", "--", "touch", "/tmp/go")):
        await asyncio.to_thread(real_cluster.kubectl, "-n", namespace, *command)
    async with opened(real_cluster, namespace) as target:
        await target.adopt(handle)
        assert (await until_exit(target, handle))[-1].exit.code == 3  # type: ignore[union-attr]
        await until(lambda: target._watcher.pods(handle)[0].over)
        assert b"the last words\n" in await log_of(target, handle)
        assert await target.fetch(handle, "records.jsonl", tmp_path / "records.jsonl")
        assert b'"code":3' in (tmp_path / "records.jsonl").read_bytes()
        await target.remove(handle)
