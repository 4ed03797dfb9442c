"""What happens inside pods, on a real node: logs, commands, ports, files."""

import asyncio
import hashlib
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cutter import cutting

from cluster import Cluster
from cluster.image import BUSYBOX
from seatrial.kubernetes import (
    PODS,
    ApiError,
    CommandFailed,
    Forbidden,
    Kubernetes,
    NotFound,
    Object,
    ObjectPart,
    Pod,
    load_access,
)

pytestmark = pytest.mark.cluster


class Status(ObjectPart, frozen=True):
    phase: str = ""


class PodSeen(Object, frozen=True):
    status: Status = Status()


@pytest.fixture
async def client(real_cluster: Cluster) -> AsyncIterator[Kubernetes]:
    async with Kubernetes(load_access(real_cluster.kubeconfig)) as made:
        yield made


@asynccontextmanager
async def running(client: Kubernetes, script: str, phase: str = "Running", **spec: Any) -> AsyncIterator[Pod]:
    name = f"client-{uuid.uuid4().hex[:8]}"
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
    }
    whole = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole})
    try:
        async with asyncio.timeout(600):
            async for event in client.watch(PODS, PodSeen, fields=f"metadata.name={name}"):
                if event.object and event.object.status.phase == phase:
                    break
        yield client.pod(name)
    finally:
        await client.delete(PODS, name, grace_s=0)


async def test_a_command_has_its_exit_code_and_its_streams(client: Kubernetes) -> None:
    async with running(client, "sleep 600") as pod:
        done = await pod.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
        assert done == (3, b"out\n", b"err\n")
        assert (await pod.run(["no-such-command"])).exit_code == 127
        with pytest.raises(CommandFailed, match=r"sh in pod .* exited 5: why"):
            await pod.run(["sh", "-c", "echo why >&2; exit 5"], check=True)
        short = await pod.run(["sh", "-c", "yes | head -c 1000000"], most_bytes=1000)
        assert len(short.stdout) == 1000
        with pytest.raises(ApiError, match=r"container other is not valid for pod.*400"):
            await client.pod(pod.name, "other").run(["true"])
    with pytest.raises(NotFound, match='pods "none" not found'):
        await client.pod("none").run(["true"])


async def test_a_command_whose_pod_is_killed_is_no_success(client: Kubernetes) -> None:
    async with running(client, "sleep 600") as pod:
        waiting = asyncio.ensure_future(pod.run(["sh", "-c", "touch /tmp/up; exec sleep 600"]))
        await pod.run(["sh", "-c", "until test -e /tmp/up; do sleep 0.1; done"])
        await client.delete(PODS, pod.name, grace_s=0)
        (ended,) = await asyncio.wait_for(asyncio.gather(waiting, return_exceptions=True), 600)
        if isinstance(ended, BaseException):
            assert "before the command's result arrived" in str(ended)
        else:
            assert ended.exit_code == 137


async def test_files_come_out_whole(client: Kubernetes, tmp_path: Path) -> None:
    script = """
      mkdir -p /tmp/kept/deep/er; head -c 5000000 /dev/urandom > /tmp/kept/big; echo small > /tmp/kept/deep/er/file
      : > /tmp/kept/empty; ln -s /etc/passwd /tmp/kept/out; ln -s big /tmp/kept/in; mkfifo /tmp/kept/pipe
      echo odd > "/tmp/kept/a name with 'quotes'"; sleep 600"""
    async with running(client, script) as pod:
        await pod.run(["sh", "-c", "while [ ! -e \"/tmp/kept/a name with 'quotes'\" ]; do sleep 0.1; done"])
        wanted = (await pod.run(["sha256sum", "/tmp/kept/big"], check=True)).stdout.split()[0].decode()
        skipped = await pod.fetch_folder("/tmp/kept", tmp_path / "kept")
        assert hashlib.sha256((tmp_path / "kept" / "big").read_bytes()).hexdigest() == wanted
        assert (tmp_path / "kept" / "deep" / "er" / "file").read_text() == "small\n"
        assert (tmp_path / "kept" / "a name with 'quotes'").read_text() == "odd\n"
        assert (tmp_path / "kept" / "in").readlink() == Path("big")
        assert "./out" in skipped
        assert not (tmp_path / "kept" / "out").is_symlink()
        with pytest.raises(CommandFailed, match="No such file or directory"):
            await pod.fetch_folder("/tmp/none", tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


async def test_files_come_out_over_a_way_that_is_cut_and_go_on_where_they_stopped(
    client: Kubernetes, tmp_path: Path
) -> None:
    """No connection lives long enough for all of it."""
    script = "mkdir /tmp/kept; head -c 4000000 /dev/urandom > /tmp/data; mv /tmp/data /tmp/kept; sleep 600"
    async with running(client, script) as pod:
        await pod.run(["sh", "-c", "while [ ! -e /tmp/kept/data ]; do sleep 0.1; done"])
        wanted = (await pod.run(["sha256sum", "/tmp/kept/data"], check=True)).stdout.split()[0].decode()
        async with cutting(client.access) as cutter, Kubernetes(cutter.access) as far:
            cutter.least_bytes, cutter.most_bytes = 700_000, 1_500_000
            await far.pod(pod.name).fetch_folder("/tmp/kept", tmp_path / "kept")
            assert hashlib.sha256((tmp_path / "kept/data").read_bytes()).hexdigest() == wanted
            assert cutter.cuts > 1


async def test_a_port_of_a_pod_is_a_port_here(client: Kubernetes) -> None:
    script = "mkdir /tmp/www; head -c 2000000 /dev/zero > /tmp/www/zero; httpd -f -p 8080 -h /tmp/www"
    async with running(client, script) as pod:
        await pod.run(["sh", "-c", "while ! wget -q -O /dev/null http://127.0.0.1:8080/zero; do sleep 0.1; done"])
        async with pod.forward(8080) as forward:
            sizes = await asyncio.gather(*(get(forward.host, forward.port, "/zero") for _ in range(5)))
            assert sizes == [2_000_000] * 5
            assert not forward.problem
        with pytest.raises(OSError, match=r"refused|Connect"):
            await asyncio.open_connection(forward.host, forward.port)
        async with pod.forward(9999) as forward:
            assert await get(forward.host, forward.port, "/") == 0
            assert "9999" in forward.problem


async def get(host: str, port: int, path: str) -> int:
    """How many bytes the body has."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    answer = await reader.read()
    while block := await reader.read():
        answer += block
    writer.close()
    return len(answer.partition(b"\r\n\r\n")[2])


WRITER = """
i=0; while [ $i -lt %d ]; do
  echo "line $i"; echo "error $i" >&2; i=$((i+1)); [ $((i %% 100)) = 0 ] && sleep 0.05
done; true"""


def check(text: list[bytes], lines: int) -> None:
    for word in ("line", "error"):
        mine = [line for line in text if line.startswith(word.encode())]
        assert mine == [f"{word} {number}\n".encode() for number in range(lines)]
    assert len(text) == 2 * lines


async def test_the_log_of_a_pod_is_whole_over_a_way_that_is_cut(client: Kubernetes) -> None:
    async with cutting(client.access) as cutter, Kubernetes(cutter.access) as far:
        async with running(client, WRITER % 20_000, phase="Succeeded") as pod:
            text = b""
            async for block in far.pod(pod.name).log():
                if not text:
                    cutter.cut()
                text += block
            check(text.splitlines(keepends=True), 20_000)
        assert cutter.cuts == 1


async def test_a_right_that_is_missing_for_a_command_is_named(client: Kubernetes) -> None:
    impersonated = replace(client.access.identity, impersonate=(("Impersonate-User", "jane"),))
    async with running(client, "sleep 600") as pod, Kubernetes(replace(client.access, identity=impersonated)) as jane:
        with pytest.raises(
            Forbidden, match=r"user 'jane' lacks permission to (get|create) pods/exec in namespace default"
        ):
            await jane.pod(pod.name).run(["true"])
        with pytest.raises(Forbidden, match=r"lacks permission to get pods/log"):
            [line async for line in jane.pod(pod.name).log()]
        async with jane.pod(pod.name).forward(80) as forward:
            assert await get(forward.host, forward.port, "/") == 0
            assert "lacks permission to get pods/portforward in namespace default" in forward.problem
