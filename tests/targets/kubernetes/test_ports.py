"""Ports of jobs and when they are ready: in manifests, in the state of pods, and on a real node."""

import asyncio
import contextlib
import json
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from manifest_shapes import changed, container, made_of, options_of
from on_cluster import job, nothing_left, objects, opened

from cluster.cluster import Cluster
from seatrial.http.relay import LocalPort
from seatrial.job import Event, Job, Outcome, Port, Ready, Stage
from seatrial.targets import TargetError
from seatrial.targets.kubernetes import kind
from seatrial.targets.kubernetes.endpoint import JobPort, route
from seatrial.targets.kubernetes.submit import JobAnnotation
from seatrial.targets.kubernetes.target import KubernetesTarget
from seatrial.targets.kubernetes.watch.jobs import TrackedPod
from seatrial.targets.kubernetes.watch.objects import PodObject
from targets.contract import log_of, until_exit

BUSYBOX = "localhost/busybox:1"
HTTP = Port("http", 8000)
# Answers `hello`; of /health it says 503 until the file is there.
SERVER = """python3 -c '
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/" or os.path.exists("/tmp/go") else 503)
        self.end_headers()
        self.wfile.write(b"hello")
http.server.ThreadingHTTPServer(("", int(os.environ["SEATRIAL_PORT"])), Handler).serve_forever()
'"""
# A server without Python: each connection gets one line.
PLAIN_SERVER = "while true; do echo hello $SEATRIAL_PORT_{} | nc -l -p $SEATRIAL_PORT_{}; done"


def server(*commands: str, ready: Ready | None = None, ports: tuple[Port, ...] = (HTTP,), **fields: Any) -> Job:
    return job(*(commands or (SERVER,)), ports=ports, ready=ready, **fields)


# ---- manifests


def test_a_port_that_only_has_to_accept_a_connection_is_probed_by_one() -> None:
    made = made_of(changed(ports=(Port("http", 80),), ready=Ready("http")), options_of("{}"))
    probe = container(made.root)["readinessProbe"]
    assert probe["tcpSocket"] == {"port": "http"}
    assert probe["periodSeconds"] == 1


def test_without_ready_nothing_is_probed_and_without_ports_no_variable_is_set() -> None:
    assert "readinessProbe" not in container(made_of(changed(ports=(HTTP,)), options_of("{}")).root)
    bare = container(made_of(changed(), options_of("{}")).root)
    assert "ports" not in bare
    assert not [one for one in bare["env"] if one["name"].startswith("SEATRIAL_PORT")]


def test_the_number_of_a_port_is_the_jobs_to_say_and_no_variable_of_the_user_changes_it() -> None:
    wanted = changed(ports=(HTTP, Port("grpc-api", 8033)), env={"SEATRIAL_PORT": "1", "SEATRIAL_PORT_GRPC_API": "2"})
    variables = {one["name"]: one.get("value") for one in container(made_of(wanted, options_of("{}")).root)["env"]}
    assert variables["SEATRIAL_PORT"] == "8000"
    assert variables["SEATRIAL_PORT_HTTP"] == "8000"
    assert variables["SEATRIAL_PORT_GRPC_API"] == "8033"


def test_ready_by_a_port_that_there_is_not_is_refused() -> None:
    with pytest.raises(TargetError, match=r"names port 'grpc', which it lacks; its ports: http") as caught:
        made_of(changed(ports=(HTTP,), ready=Ready("grpc")), options_of("{}"))
    assert caught.value.outcome is Outcome.REFUSED


@pytest.mark.parametrize(
    ("patch", "lost"),
    [
        ("{name: trial, readinessProbe: null}", "readinessProbe of container trial"),
        ("{name: trial, readinessProbe: {periodSeconds: 60}}", "readinessProbe of container trial"),
        ("{name: trial, ports: [{containerPort: 8000, $patch: delete}]}", "port http of container trial"),
    ],
)
def test_a_template_cannot_take_away_what_says_that_a_job_is_ready(patch: str, lost: str) -> None:
    options = options_of(f"{{template: {{spec: {{containers: [{patch}]}}}}}}")
    with pytest.raises(TargetError, match=lost):
        made_of(changed(ports=(HTTP,), ready=Ready("http")), options)


# ---- the state of a pod


def pod(ready: str, since: str, trial: dict[str, Any], *, probed: bool = True) -> PodObject:
    probe = {"readinessProbe": {}} if probed else {}
    made = {
        "metadata": {"name": "p", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "n", "containers": [{"name": "trial", **probe}]},
        "status": {
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": f"2026-01-01T00:00:{since}Z"}],
            "containerStatuses": [{"name": "trial", **trial}],
        },
    }
    return msgspec.convert(made, PodObject)


RUNNING = {"state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}}}
ENDED = {"state": {"terminated": {"startedAt": "2026-01-01T00:00:05Z", "finishedAt": "2026-01-01T00:01:00Z"}}}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (pod("True", "09", {**RUNNING, "ready": True}), True),
        (pod("False", "04", {**RUNNING, "ready": False}), False),
        (pod("False", "04", {**RUNNING, "ready": True}), True),  # another container of the pod is not
        (pod("True", "09", {**RUNNING, "ready": True}, probed=False), False),
        (pod("False", "59", ENDED), True),  # it stopped being ready after its start
        (pod("False", "04", ENDED), False),
        (pod("False", "05", ENDED), False),
    ],
    ids=["ready", "not-yet", "alone", "no-probe", "was-ready", "never-ready", "never-ready-within-a-second"],
)
def test_whether_a_trial_is_or_was_ready_is_read_from_its_pod(seen: PodObject, expected: bool) -> None:
    assert seen.ready is expected
    times = TrackedPod(seen)
    times.update(seen, 1e10, live=False)
    assert (Stage.READY in times.times) is expected
    if expected and Stage.FINISHED in times.times:
        assert times.times[Stage.READY].wall_s <= times.times[Stage.FINISHED].wall_s


# ---- on a real node


class Watch:
    """The events of a target, collected while the test goes on."""

    def __init__(self, target: KubernetesTarget) -> None:
        self.events: list[Event] = []
        self._news = asyncio.Condition()
        self._task = asyncio.create_task(self._read(target))

    async def _read(self, target: KubernetesTarget) -> None:
        async for event in target.watch():
            async with self._news:
                self.events.append(event)
                self._news.notify_all()

    def stages(self, handle: str) -> list[Stage]:
        return [event.time.stage for event in self.events if event.handle == handle and event.time]

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(600), self._news:
            await self._news.wait_for(holds)

    async def until_stage(self, handle: str, stage: Stage) -> None:
        await self.until(lambda: stage in self.stages(handle))

    async def __aenter__(self) -> "Watch":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.fixture
async def target(real_cluster: Cluster, namespace: str) -> AsyncIterator[KubernetesTarget]:
    async with opened(real_cluster, namespace) as made:
        yield made


def trial_shell(cluster: Cluster, namespace: str, handle: str, script: str) -> None:
    root = handle.rpartition("/")[2]
    name = cluster.kubectl("get", "pods", "-n", namespace, "-l", f"seatrial/job={root}", "-o", "name").stdout.strip()
    cluster.kubectl("exec", "-n", namespace, name, "-c", "trial", "--", "sh", "-c", script)


async def status(address: str, path: str = "/") -> int:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as answer:
        return answer.status


async def until_said(address: str, expected: bytes) -> None:
    """Between two connections nobody listens: then one that is forwarded just closes."""
    host, _, port = address.partition(":")
    received = b""
    async with asyncio.timeout(600):
        while received != expected:
            reader, writer = await asyncio.open_connection(host, int(port))
            received = await reader.read()
            writer.close()


@pytest.mark.cluster
async def test_it_is_ready_once_when_its_path_answers_and_never_before(
    target: KubernetesTarget, real_cluster: Cluster, namespace: str
) -> None:
    async with Watch(target) as watch:
        handle = await target.submit(server(f"exec {SERVER}", ready=Ready("http", "/health")), {})
        await watch.until_stage(handle, Stage.STARTED)
        async with target.endpoint(handle, "http") as address:
            async with asyncio.timeout(600):
                while True:
                    try:
                        assert await status(address, "/health") == 503
                        break
                    except aiohttp.ClientError:  # it listens in a moment
                        await asyncio.sleep(0.1)
            assert Stage.READY not in watch.stages(handle)
            await asyncio.to_thread(trial_shell, real_cluster, namespace, handle, "touch /tmp/go")
            await watch.until_stage(handle, Stage.READY)
            assert await status(address, "/health") == 200
        # Who finds it ended knows of whole seconds only: of one that ended in that of its start, not that it was ready.
        (started_s,) = [one.time.wall_s for one in watch.events if one.time and one.time.stage is Stage.STARTED]
        await asyncio.sleep(max(0.0, started_s + 1.0 - time.time()))
        await target.cancel(handle)
        await watch.until_stage(handle, Stage.FINISHED)
        assert watch.stages(handle).count(Stage.READY) == 1
        times = [event.time for event in watch.events if event.time]
        ready = next(one for one in times if one.stage is Stage.READY)
        assert ready.source == "watch"
        assert ready.uncertainty_s >= 0
        assert [one.wall_s for one in times] == sorted(one.wall_s for one in times)
    async with opened(real_cluster, namespace) as later:  # which finds it ended
        await later.adopt(handle)
        found = [event.time.stage for event in await until_exit(later, handle) if event.time]
        assert found[-2:] == [Stage.READY, Stage.FINISHED]
        with pytest.raises(TargetError, match="the job has ended"):
            async with later.endpoint(handle, "http"):
                pass
        await later.remove(handle)


@pytest.mark.cluster
async def test_one_that_ends_before_it_listens_is_never_ready(target: KubernetesTarget) -> None:
    handle = await target.submit(server("exit 3", ready=Ready("http")), {})
    assert Stage.READY not in [event.time.stage for event in await until_exit(target, handle) if event.time]
    await target.remove(handle)


@pytest.mark.cluster
async def test_two_ports_of_an_image_without_python_are_open_at_once_to_any_process(
    target: KubernetesTarget, real_cluster: Cluster, namespace: str
) -> None:
    both = " & ".join(PLAIN_SERVER.format(name, name) for name in ("A", "B_2"))
    ports = (Port("a", 8001), Port("b-2", 8002))
    wanted = server(both, image=BUSYBOX, ports=ports, ready=Ready("b-2"))
    async with Watch(target) as watch:
        handle = await target.submit(wanted, {})
        await watch.until_stage(handle, Stage.READY)
        with pytest.raises(TargetError, match=r"has no port 'c'; it has: a, b-2") as caught:
            async with target.endpoint(handle, "c"):
                pass
        assert caught.value.outcome is Outcome.REFUSED
        async with opened(real_cluster, namespace) as other:
            await other.adopt(handle)
            async with Watch(other) as seen:
                await seen.until_stage(handle, Stage.READY)
            async with (
                other.endpoint(handle, "a") as first,
                other.endpoint(handle, "b-2") as second,
                target.endpoint(handle, "a") as third,
            ):
                assert len({first, second, third}) == 3
                await until_said(first, b"hello 8001\n")
                await until_said(second, b"hello 8002\n")
                await until_said(third, b"hello 8001\n")
        await target.remove(handle)


@pytest.mark.cluster
async def test_the_port_of_a_job_whose_run_another_machine_works_on_can_be_opened(
    target: KubernetesTarget, real_cluster: Cluster, namespace: str
) -> None:
    wanted = server(ready=Ready("http"))
    async with Watch(target) as watch:
        handle = await target.submit(wanted, {})
        await watch.until_stage(handle, Stage.READY)
    holder = json.dumps({"host": "far", "boot": "b", "pid": 7})
    patch = {"metadata": {"annotations": {"seatrial/holder": holder}}}
    command = ["patch", "job", f"seatrial-{wanted.run}", "-n", namespace, "--type=merge", "-p", json.dumps(patch)]
    await asyncio.to_thread(real_cluster.kubectl, *command)
    async with opened(real_cluster, namespace) as other:
        async with other.endpoint(handle, "http") as address:
            assert await status(address) == 200
            assert address.route == "port-forward through the API server"
            assert 0 < address.overhead_s <= address.overhead_p99_s < 60
        assert [found.in_use for found in await other.list()] == [True]
    await target.remove(handle)


@pytest.mark.cluster
async def test_jobs_of_the_cluster_reach_a_port_by_a_service_and_others_do_not(
    target: KubernetesTarget, real_cluster: Cluster, namespace: str
) -> None:
    served = await target.submit(server(), {})
    addresses = await target.addresses(served, target.address())
    assert await target.addresses(served, target.address()) == addresses  # as one that takes the run up asks again
    assert await target.addresses(served, {"parallel": 2}) == {}
    assert await target.addresses(served, {**target.address(), "context": "another"}) == {}
    ask = f"until wget -q -O - http://{addresses['http']}/; do sleep 0.2; done"
    asking = await target.submit(job(ask, image=BUSYBOX), {})
    assert (await until_exit(target, asking))[-1].exit.code == 0  # type: ignore[union-attr]
    assert b"hello" in await log_of(target, asking)
    for handle in (served, asking):
        await target.remove(handle)
    await target.close()
    await nothing_left(real_cluster, namespace)


class Front(LocalPort):
    """What an ingress controller, or a cluster's own names, are to who comes by them: all names lead here, and here
    leads to the job. With a certificate it ends TLS. It says 503 to the first who come."""

    def __init__(self, tls: ssl.SSLContext | None, unready: int) -> None:
        super().__init__()
        self.behind = ""
        self.came = 0
        self._tls, self._unready = tls, unready

    async def open(self) -> None:
        self._listening = await asyncio.start_server(self._serve, self.host, 0, ssl=self._tls)
        self.port = int(self._listening.sockets[0].getsockname()[1])

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        if self.came <= self._unready:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        host, _, port = self.behind.rpartition(":")
        onward, outward = await asyncio.open_connection(host, int(port))
        await asyncio.gather(relay(reader, outward), relay(onward, writer))


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while block := await reader.read(1 << 16):
            writer.write(block)
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def names_lead_to(front: Front, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """As a DNS with a wildcard would have it."""
    looked_up = socket.getaddrinfo

    def look_up(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        there = str(host).endswith((".apps.example.com", ".svc"))
        return looked_up(front.host if there else host, front.port if there else port, *args, **kwargs)

    await front.open()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(socket, "getaddrinfo", look_up)
            yield
    finally:
        await front.close()


WAYS: list[tuple[dict[str, Any], str, int]] = [
    ({"endpoint": "service"}, "-8000.{namespace}.svc:8000", 0),
    ({"endpoint": "ingress", "endpoint_class": "nginx"}, ".apps.example.com:80", 3),
    ({"endpoint": "ingress", "endpoint_tls": "wildcard"}, "-8081.apps.example.com:443", 3),
]


@pytest.mark.cluster
async def test_every_way_through_the_cluster_is_waited_for_measured_and_goes_with_the_job(
    target: KubernetesTarget, real_cluster: Cluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.targets.route.CLOSED_S", 4.0)  # that a busy node needs to refuse what came too early
    ports = (HTTP, Port("admin", 8081))
    handle = await target.submit(server(f"sleep 1; exec {SERVER}", ports=ports), {})  # nothing was awaited before
    name = handle.rpartition("/")[2]
    async with target.endpoint(handle, "http") as behind:
        for options, end, unready in WAYS:
            secure = "endpoint_tls" in options
            front = Front(certificate(tmp_path) if secure else None, unready)
            front.behind = behind
            host = {"endpoint_host": "{job}.apps.example.com"} if options["endpoint"] == "ingress" else {}
            async with (
                opened(real_cluster, namespace, **options, **host) as other,
                names_lead_to(front, monkeypatch),
                other.endpoint(handle, "admin" if secure else "http") as address,
            ):
                assert address == name + end.format(namespace=namespace)
                assert (address.route, address.tls) == (options["endpoint"], secure)
                assert 0 < address.overhead_s <= address.overhead_p99_s
                assert front.came > unready
                scheme = "https" if secure else "http"
                async with aiohttp.ClientSession() as session, session.get(f"{scheme}://{address}/", ssl=False) as got:
                    assert await got.text() == "hello"
    made = json.loads(real_cluster.kubectl("get", "ingresses", "-n", namespace, "-o", "json").stdout)["items"]
    hosts = [one["spec"]["rules"][0]["host"] for one in made]
    assert hosts == [f"{name}.apps.example.com", f"{name}-8081.apps.example.com"]
    for one in made:
        backend = one["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
        assert f"service/{backend['name']}" in objects(real_cluster, namespace)
        assert one["metadata"]["ownerReferences"][0]["name"] == name
    assert [one["spec"].get("tls") for one in made] == [None, [{"hosts": [hosts[1]], "secretName": "wildcard"}]]
    await target.remove(handle)
    await target.close()
    await nothing_left(real_cluster, namespace)


def certificate(folder: Path) -> ssl.SSLContext:
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command, *files, "-days", "2", "-subj", "/CN=apps"], check=True, capture_output=True)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return made


def test_a_route_ends_tls_at_its_edge() -> None:
    owner = {"kind": "Job", "name": "j", "uid": "u"}
    annotation = JobAnnotation("j", "r", ports={"http": 8000, "admin": 8081})
    for tls, expected in ((True, {}), ("mine", {"externalCertificate": {"name": "mine"}})):
        options = kind.options(endpoint="route", endpoint_host="{job}.apps.example.com", endpoint_tls=tls)
        made = route(JobPort(None, options, annotation, owner, "admin"))  # type: ignore[arg-type]
        assert made["spec"]["tls"] == {"termination": "edge", **expected}
        assert made["spec"]["host"] == "j-8081.apps.example.com"
