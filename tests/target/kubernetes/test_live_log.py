"""The log of a job, live: whole across cut connections, with every container and host in it."""

import asyncio
from pathlib import Path

import pytest
from cut import cut_line
from on_cluster import job, opened

from cluster.cluster import Cluster
from target.contract import log_of, until_exit

pytestmark = pytest.mark.cluster
LINES = 1_000_000
# About 30 MB in about 25 s: more than the log keeps, and more than fits between two cuts.
WRITER = f"""python3 -c '
import sys, time
for n in range({LINES}):
    sys.stdout.write("line %08d of a training run\\n" % n)
    if n % 4000 == 0:
        sys.stdout.flush()
        time.sleep(0.1)
'"""


async def test_of_a_million_lines_none_is_lost_and_none_comes_twice_over_cut_connections(
    real_cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    async with cut_line(real_cluster, tmp_path) as (kubeconfig, line):

        async def cut_now_and_then() -> None:
            for _ in range(200):
                await asyncio.sleep(2.0)
                line.cut()

        async with opened(real_cluster, namespace, kubeconfig=kubeconfig) as target:
            handle = await target.submit(job(WRITER), {})
            cutting = asyncio.create_task(cut_now_and_then())
            expected, rest, cuts = 0, b"", 0
            async for block in target.logs(handle, follow=True):
                *lines, rest = (rest + block).split(b"\n")
                for text in lines:
                    if text.startswith(b"line "):
                        assert text == b"line %08d of a training run" % expected
                        expected += 1
                cuts = line.cuts
            cutting.cancel()
            assert expected == LINES
            assert cuts >= 5
            assert (await until_exit(target, handle))[-1].exit.code == 0  # type: ignore[union-attr]
            await target.remove(handle)


async def test_the_logs_of_containers_that_the_template_adds_are_part_of_it(
    real_cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    secure = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    side = {
        "name": "side", "image": "localhost/busybox:1", "imagePullPolicy": "Never",
        "command": ["sh", "-c", "echo from the side; sleep 2"], "securityContext": secure,
    }  # fmt: skip
    template = {"spec": {"containers": [side]}}
    async with opened(real_cluster, namespace, template=template) as target:
        handle = await target.submit(job("echo from the trial; sleep 2"), {})
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
    async with opened(real_cluster, namespace, keep="1s") as target:
        handle = await target.submit(job("echo the last words; exit 3"), {})
    async with opened(real_cluster, namespace) as target:
        await target.adopt(handle)
        assert (await until_exit(target, handle))[-1].exit.code == 3  # type: ignore[union-attr]
        await asyncio.sleep(3)
        assert b"the last words\n" in await log_of(target, handle)
        assert await target.fetch(handle, "records.jsonl", tmp_path / "records.jsonl")
        assert b'"code":3' in (tmp_path / "records.jsonl").read_bytes()
        await target.remove(handle)
