"""The Kubernetes client: creates and watch events per second of one core, memory of a watch, import; and client-go.

Against a stub in another process, and, where a cluster can be had, creates and watch events of a real API server beside
aiohttp with orjson alone, and beside a Go program of ours that does the same with client-go (bench/go-client). CPU time
throughout, so that a busy machine does not matter.

python bench/kubernetes_client.py [KUBECONFIG]
"""

import asyncio
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _measure import CACHE, ROOT, cache_lock, sized, table

sys.path.insert(0, str(ROOT))

PODS_SEEN = sized(10_000, 500)
CREATES, REAL_CREATES, EVENTS = sized((10_000, 1_500, 200_000), (100, 20, 1_000))
PARALLEL = 32
KUBE_BURNER = "v2.7.3"
ROUNDS, REAL_ROUNDS = sized((3, 5), (1, 1))


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def pod(name: str) -> dict[str, Any]:
    """The same as in bench/go-client: it waits behind a gate, so that nothing but the API server works on it."""
    container = {"name": "main", "image": "none", "command": ["true"]}
    gate = {"name": "seatrial.dev/bench"}
    spec = {"restartPolicy": "Never", "schedulingGates": [gate], "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "bench"}}, "spec": spec}


async def creates(client: Any, namespace: str, count: int) -> float:
    """CPU seconds of one create."""
    prefix, numbers = f"bench-{uuid.uuid4().hex[:6]}", iter(range(count))

    async def work() -> None:
        for number in numbers:
            await client.create(pod(f"{prefix}-{number}"), namespace=namespace)

    before = cpu_s()
    await asyncio.gather(*(work() for _ in range(PARALLEL)))
    return (cpu_s() - before) / count


class Aiohttp:
    """A create with aiohttp and orjson alone, without the client's retries and errors: the least that it can cost."""

    def __init__(self, session: Any, base: str, tls: Any) -> None:
        import msgspec

        from seatrial.kubernetes import Object

        self._session, self._base, self._tls = session, base, tls
        self._decoder = msgspec.json.Decoder(Object)

    async def create(self, manifest: dict[str, Any], namespace: str) -> Any:
        import orjson
        from yarl import URL

        accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
        headers = {"Accept": accept, "Content-Type": "application/json"}
        url = URL(
            f"{self._base}/api/v1/namespaces/{namespace}/pods?fieldManager=b&fieldValidation=Strict", encoded=True
        )
        async with self._session.post(url, data=orjson.dumps(manifest), headers=headers, ssl=self._tls) as answer:
            body = await answer.read()
            if answer.status >= 300:
                raise SystemExit(f"{answer.status}: {body[:200]!r}")
            return self._decoder.decode(body)


async def aiohttp_creates(kubeconfig: str, namespace: str, count: int) -> float:
    import aiohttp

    from seatrial.kubernetes import Access, load_access
    from seatrial.kubernetes.credentials import tls_context

    access = Access(kubeconfig) if kubeconfig.startswith("http:") else load_access(kubeconfig)
    tls = tls_context(access, access.identity.certificate, access.identity.key) or True
    connector = aiohttp.TCPConnector(limit=64)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        client = Aiohttp(session, access.server, tls)
        await creates(client, namespace, 200)
        return await creates(client, namespace, count)


def _seen_form() -> Any:
    """As much of a pod as a target reads."""
    from seatrial.kubernetes import Object, ObjectPart

    class Condition(ObjectPart, frozen=True, gc=False):
        type: str = ""
        status: str = ""
        reason: str = ""

    class Status(ObjectPart, frozen=True, gc=False):
        phase: str = ""
        conditions: tuple[Condition, ...] = ()

    class Spec(ObjectPart, frozen=True, gc=False):
        node_name: str = ""

    class Seen(Object, frozen=True, gc=False):
        spec: Spec = Spec()
        status: Status = Status()

    return Seen


async def watch(client: Any) -> tuple[float, int]:
    """(CPU seconds of one event, bytes that the watch over 10,000 pods takes)."""
    from seatrial.kubernetes import MODIFIED, PODS, SYNCED

    resident, before, seen = resident_bytes(), cpu_s(), 0
    async for event in client.watch(PODS, _seen_form()):
        if event.kind == SYNCED:
            before = cpu_s()
        elif event.kind == MODIFIED:
            seen += 1
            if seen == EVENTS:
                break
    return (cpu_s() - before) / seen, resident_bytes() - resident


async def measure(port: int) -> dict[str, float]:
    from seatrial.kubernetes import Access, Kubernetes

    async with Kubernetes(Access(f"http://127.0.0.1:{port}", namespace="bench")) as client:
        await creates(client, "bench", 200)
        create = min([await creates(client, "bench", CREATES) for _ in range(ROUNDS)])
        event, memory = await watch(client)
        event = min([event, *[(await watch(client))[0] for _ in range(ROUNDS - 1)]])
    return {"create_s": create, "event_s": event, "memory_bytes": memory}


async def real_creates(kubeconfig: str, namespace: str) -> float:
    from seatrial.kubernetes import Kubernetes, load_access

    async with Kubernetes(load_access(kubeconfig)) as client:
        await creates(client, namespace, 200)
        return await creates(client, namespace, REAL_CREATES)


async def real_watch(kubeconfig: str, namespace: str, how: str) -> float:
    """CPU seconds of one event, of the pods that another process makes when this one says that it watches."""
    from seatrial.kubernetes import PODS, SYNCED, Kubernetes, load_access

    async with Kubernetes(load_access(kubeconfig)) as client:
        if how == "aiohttp":
            return await aiohttp_watch(client.access, namespace)
        before, seen = 0.0, 0
        async for event in client.watch(PODS, _seen_form(), namespace=namespace):
            if event.kind == SYNCED:
                before = cpu_s()
                print("watching", flush=True)
            elif before:
                seen += 1
                if seen == 200 + REAL_CREATES:
                    break
        return (cpu_s() - before) / seen


async def aiohttp_watch(access: Any, namespace: str) -> float:
    import aiohttp
    import orjson

    from seatrial.kubernetes.credentials import tls_context

    tls = tls_context(access, access.identity.certificate, access.identity.key) or True
    url = f"{access.server}/api/v1/namespaces/{namespace}/pods"
    async with aiohttp.ClientSession(read_bufsize=1 << 18) as session:
        async with session.get(url, params={"limit": "1"}, ssl=tls) as answer:
            version = orjson.loads(await answer.read())["metadata"]["resourceVersion"]
        asked = {"watch": "1", "resourceVersion": version}
        async with session.get(url, params=asked, ssl=tls, timeout=aiohttp.ClientTimeout(total=None)) as answer:
            before, seen = cpu_s(), 0
            print("watching", flush=True)
            async for line in answer.content:
                orjson.loads(line)
                seen += 1
                if seen == 200 + REAL_CREATES:
                    break
            return (cpu_s() - before) / seen


def here(name: str, *args: str) -> Any:
    """A part of this file, in a process of its own, and what it printed."""
    done = subprocess.run([sys.executable, __file__, name, *args], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def import_s() -> float:
    script = "import resource as r; b=r.getrusage(r.RUSAGE_SELF)\nimport seatrial.kubernetes\n"
    script += "a=r.getrusage(r.RUSAGE_SELF); print(a.ru_utime + a.ru_stime - b.ru_utime - b.ru_stime)"
    return min(float(subprocess.check_output([sys.executable, "-c", script])) for _ in range(ROUNDS))


@contextmanager
def stub() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, __file__, "stub"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def real(kubeconfig: str | None) -> Iterator[str]:
    """The kubeconfig of a cluster: the one that is given, or a control plane of our own."""
    if kubeconfig is not None:
        yield kubeconfig
        return
    from cluster import up

    with tempfile.TemporaryDirectory() as folder, up("bench", place=folder) as made:
        yield str(made.kubeconfig)


def go_program(package: str = ".") -> Path:
    """One of the programs in bench/go-client, built when it changed."""
    source = ROOT / "bench" / "go-client"
    program = CACHE / "go-client" if package == "." else CACHE / package
    changed_s = max(file.stat().st_mtime for file in source.rglob("*.go"))
    with cache_lock():
        if not program.exists() or program.stat().st_mtime < changed_s:
            subprocess.run(["go", "build", "-trimpath", "-o", program, f"./{package}"], cwd=source, check=True)
    return program


def kube_burner() -> Path | None:
    """The real one, built in a copy of its own source, because its go.mod replaces modules; None where the module or
    one of its dependencies cannot be had."""
    program, source = CACHE / f"kube-burner-{KUBE_BURNER}", CACHE / "kube-burner-source"
    with cache_lock():
        if not program.exists():
            module = f"github.com/kube-burner/kube-burner/v2@{KUBE_BURNER}"
            got = subprocess.run(["go", "mod", "download", "-json", module], cwd="/", capture_output=True, text=True)
            folder = json.loads(got.stdout or "{}").get("Dir")
            if not folder:
                return None
            shutil.rmtree(source, ignore_errors=True)
            shutil.copytree(folder, source, copy_function=shutil.copyfile)
            build = ["go", "build", "-mod=mod", "-trimpath", "-o", program, "./cmd/kube-burner"]
            if subprocess.run(build, cwd=source, stderr=subprocess.DEVNULL).returncode:
                return None
    return program


def round_of(kubeconfig: str, namespace: str, how: str) -> tuple[float, float]:
    """CPU seconds of one create and of one watch event, each in a process of its own, at the same time."""
    args = [sys.executable, __file__, "real-watch", kubeconfig, namespace, how]
    watching = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    assert watching.stdout.readline() == "watching\n"
    more = [str(REAL_CREATES)] if how == "aiohttp" else []
    create = here("aiohttp" if how == "aiohttp" else "creates", kubeconfig, namespace, *more)
    event = json.loads(watching.stdout.readline())
    watching.stdout.close()
    watching.wait()
    return create, event


def go_creates(kubeconfig: str, namespace: str, number: int, content_type: str) -> float:
    args = ["-kubeconfig", kubeconfig, "-namespace", namespace, "-count", str(REAL_CREATES)]
    args += ["-parallel", str(PARALLEL), "-prefix", f"go-{number}", "-content-type", content_type]
    answer = json.loads(subprocess.check_output([go_program(), *args]))
    if answer["failed"]:
        raise SystemExit(f"client-go failed at {answer['failed']} creates")
    return float(answer["cpu_s"]) / REAL_CREATES


def on_a_real_server(kubeconfig: str, with_go: bool) -> dict[str, float]:
    """CPU seconds: medians of rounds in which all take their turns."""
    from seatrial.kubernetes import NAMESPACES, Kubernetes, load_access

    namespace = f"bench-{uuid.uuid4().hex[:6]}"

    async def admin(work: Callable[[Kubernetes], Awaitable[object]]) -> None:
        async with Kubernetes(load_access(kubeconfig)) as client:
            await work(client)

    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    asyncio.run(admin(lambda client: client.create(manifest)))
    found: dict[str, list[float]] = {}
    try:
        for number in range(REAL_ROUNDS):
            for how in ("ours", "aiohttp"):
                create, event = round_of(kubeconfig, namespace, how)
                found.setdefault(f"create {how}", []).append(create)
                found.setdefault(f"event {how}", []).append(event)
            for place, content_type in enumerate(("", "application/json") if with_go else ()):
                cost = go_creates(kubeconfig, namespace, 2 * number + place, content_type)
                found.setdefault(f"create go {content_type}", []).append(cost)
    finally:
        asyncio.run(admin(lambda client: client.delete(NAMESPACES, namespace)))
    return {name: statistics.median(values) for name, values in found.items()}


def main(kubeconfig: str | None) -> None:
    with stub() as port:
        found = here("measure", str(port))
    rows = [
        ("creates per core-second, stub", f"{1 / found['create_s']:9,.0f}   (to reach: 3,000)"),
        ("watch events per core-second, stub", f"{1 / found['event_s']:9,.0f}   (to reach: 60,000)"),
        ("memory of a watch over 10,000 pods", f"{found['memory_bytes'] / 1e6:9.1f} MB   (at most: 70 MB)"),
        ("import of the client", f"{import_s():9.2f} s CPU   (at most: 0.5 s)"),
    ]
    from cluster import Unavailable

    try:
        with real(kubeconfig) as config:
            found = on_a_real_server(config, shutil.which("go") is not None)
    except Unavailable as error:
        rows.append(("on a real API server", f"left out: {error.what}"))
    else:
        rows += _beside(found, "create", "a create on a real API server")
        rows += _beside(found, "event", "a watch event of a real API server")
    table("The Kubernetes client (stub: best of 3; real API server: medians of 5)", rows)


def _beside(found: dict[str, float], what: str, title: str) -> Iterator[tuple[str, str]]:
    """Ours, and each peer with the factor by which it takes more."""
    names = {
        "aiohttp": "aiohttp with orjson",
        "go ": "client-go, as it comes (protobuf)",
        "go application/json": "client-go, in JSON",
    }
    ours = found[f"{what} ours"]
    yield f"{title}, ours", f"{ours * 1e6:9.0f} us CPU"
    for key, name in names.items():
        if f"{what} {key}" in found:
            other = found[f"{what} {key}"]
            yield f"  {name}", f"{other * 1e6:9.0f} us CPU   ({other / ours:.2f} times ours)"


# The stub: as cheap as can be, so that it is never what is waited for.


def a_pod(number: int) -> dict[str, Any]:
    """Of the size that pods of AI clusters have: about 3.5 KB."""
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    metadata = {
        "name": f"pod-{number}",
        "namespace": "bench",
        "uid": f"00000000-0000-0000-0000-{number:012d}",
        "resourceVersion": str(1000 + number),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": "bench", "run": "r1", "cell": f"{number:08x}"},
        "annotations": {"note": "x" * 200},
        "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {"f:x": {}}}}] * 3,
    }
    container = {
        "name": "main",
        "image": "registry.example/image:1",
        "command": ["python", "train.py"],
        "env": [{"name": f"VARIABLE_{index}", "value": "v" * 20} for index in range(20)],
        "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}},
        "volumeMounts": [{"name": f"volume-{index}", "mountPath": f"/data/{index}"} for index in range(5)],
    }
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    statuses = [{"name": "main", "state": running, "ready": True, "restartCount": 0, "image": "i", "containerID": "c"}]
    status = {"phase": "Running", "conditions": conditions, "podIP": "10.0.0.2", "containerStatuses": statuses}
    spec = {"containers": [container], "nodeName": "node-1", "restartPolicy": "Never", "schedulerName": "default"}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}


class StubServer(asyncio.Protocol):
    """Answers every POST with a pod, every GET with a page, every watch with the same events for ever."""

    page_size = 500
    created = b""
    pages: list[bytes]
    events: list[bytes]

    @classmethod
    def prepare(cls) -> None:
        def plain(value: object) -> bytes:
            return json.dumps(value, separators=(",", ":")).encode()

        def answer(status: bytes, body: bytes) -> bytes:
            head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            return head % (status, len(body)) + body

        pods = [a_pod(number) for number in range(PODS_SEEN)]
        cls.created = answer(b"201 Created", plain(pods[0]))
        cls.pages = []
        for start in range(0, PODS_SEEN, cls.page_size):
            following = start + cls.page_size
            meta = {
                "resourceVersion": "99999",
                "continue": str(following // cls.page_size) if following < PODS_SEEN else "",
            }
            cls.pages.append(answer(b"200 OK", plain({"metadata": meta, "items": pods[start:following]})))
        lines = [b'{"type":"MODIFIED","object":' + plain(one) + b"}\n" for one in pods]
        cls.events = [b"%x\r\n%b\r\n" % (len(line), line) for line in lines]

    def connection_made(self, transport: Any) -> None:
        self.transport, self.rest, self.writable = transport, b"", asyncio.Event()
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        self.rest += data
        while True:
            head, end, rest = self.rest.partition(b"\r\n\r\n")
            if not end:
                return
            _, found, length = head.partition(b"Content-Length: ")
            size = int(length.partition(b"\r\n")[0]) if found else 0
            if len(rest) < size:
                return
            self.rest = rest[size:]
            self.answer(head.partition(b"\r\n")[0])

    def answer(self, line: bytes) -> None:
        if line.startswith(b"POST"):
            self.transport.write(self.created)
        elif b"watch=1" in line:
            self.stream = asyncio.ensure_future(self.watch())
        else:
            _, _, token = line.partition(b"continue=")
            self.transport.write(self.pages[int(token.partition(b"&")[0] or 0)])

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.writable.set()

    async def watch(self) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not self.transport.is_closing():
            for start in range(0, PODS_SEEN, 20):
                self.transport.write(b"".join(self.events[start : start + 20]))
                await self.writable.wait()
                if self.transport.is_closing():
                    return


async def serve() -> None:
    StubServer.prepare()
    server = await asyncio.get_running_loop().create_server(StubServer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stub"]:
            asyncio.run(serve())
        case ["measure", port]:
            print(json.dumps(asyncio.run(measure(int(port)))))
        case ["aiohttp", kubeconfig, namespace, count]:
            print(json.dumps(asyncio.run(aiohttp_creates(kubeconfig, namespace, int(count)))))
        case ["real-watch", kubeconfig, namespace, how]:
            print(json.dumps(asyncio.run(real_watch(kubeconfig, namespace, how))))
        case ["creates", kubeconfig, namespace]:
            print(json.dumps(asyncio.run(real_creates(kubeconfig, namespace))))
        case arguments:
            main(arguments[0] if arguments else None)
