"""A server that speaks enough of Kubernetes' API to be told to misbehave: the truth is tested on a real one."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from seatrial.kubernetes import Access, Identity, Kubernetes


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class Cut(Exception):
    """The connection is cut here."""


class NotHttp(Exception):
    """Somebody speaks TLS to a plain port."""


@dataclass
class Wire:
    """What a handler writes to. After `budget` bytes the connection is cut, hard."""

    writer: asyncio.StreamWriter
    budget: int | None = None
    written: int = 0
    chunked: bool = False

    def send(self, data: bytes) -> None:
        if self.budget is not None and self.written + len(data) > self.budget:
            self.writer.write(data[: self.budget - self.written])
            raise Cut
        self.written += len(data)
        self.writer.write(data)

    def json(self, status: int, value: Any, **headers: str) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {text}" for name, text in headers.items()]
        self.send("\r\n".join([*lines, "", ""]).encode() + body)

    def error(self, status: int, message: str, reason: str = "", **headers: str) -> None:
        self.json(
            status,
            {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": status},
            **headers,
        )

    def begin(self) -> None:
        self.chunked = True
        self.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n" % len(data) + data + b"\r\n")

    def end(self) -> None:
        self.send(b"0\r\n\r\n")


Handler = Callable[[Request, Wire], Awaitable[None]]


@dataclass
class Stub:
    """Pods in a store with resourceVersions, a history that can be compacted, and ways to go wrong."""

    port: int = 0
    requests: list[Request] = field(default_factory=list)
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: int = 100
    oldest: int = 0  # watches from before are answered with 410
    history: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    override: Handler | None = None  # answers instead, if it does not raise KeyError
    budgets: list[int] = field(default_factory=list)  # how many bytes each of the next connections lives
    expire_continue: int = 0  # how many of the next continuations are answered with 410
    watch_ends_after: int | None = None  # events, then the stream ends
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def put(self, name: str, **labels: str) -> dict[str, Any]:
        kind = "MODIFIED" if name in self.objects else "ADDED"
        self.version += 1
        uid = self.objects[name]["metadata"]["uid"] if name in self.objects else f"uid-{name}-{self.version}"
        meta = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(self.version), "labels": labels}
        self.objects[name] = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
        self._happened(kind, self.objects[name])
        return self.objects[name]

    def drop(self, name: str) -> None:
        self.version += 1
        gone = self.objects.pop(name)
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        self._happened("DELETED", gone)

    def compact(self) -> None:
        self.oldest = self.version
        self.history.clear()

    def _happened(self, kind: str, value: dict[str, Any]) -> None:
        self.history.append((self.version, kind, value))
        self.changed.set()
        self.changed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        wire = Wire(writer, self.budgets.pop(0) if self.budgets else None)
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                try:
                    if self.override is None:
                        raise KeyError
                    await self.override(request, wire)
                except KeyError:
                    await self.answer(request, wire)
                await writer.drain()
                if request.headers.get("connection") == "close":
                    break
        except NotHttp:
            writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
        except Cut:
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            await asyncio.sleep(0)
            writer.transport.abort()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def answer(self, request: Request, wire: Wire) -> None:
        parts = request.path.strip("/").split("/")
        name = parts[5] if len(parts) > 5 else ""
        if request.path == "/version":
            wire.json(200, {"gitVersion": "v1.35.4"})
        elif request.query.get("watch"):
            await self._watch(request, wire)
        elif request.method == "POST":
            self._create(json.loads(request.body), wire)
        elif request.method == "GET" and not name:
            self._list(request, wire)
        elif name not in self.objects:
            wire.error(404, f'pods "{name}" not found', "NotFound")
        elif request.method == "DELETE":
            self.drop(name)
            wire.json(200, {"kind": "Status", "status": "Success"})
        else:
            wire.json(200, self.objects[name])

    def _create(self, value: dict[str, Any], wire: Wire) -> None:
        meta = value["metadata"]
        name = meta.get("name") or f"{meta['generateName']}{self.version}"
        if name in self.objects:
            wire.error(409, f'pods "{name}" already exists', "AlreadyExists")
        else:
            wire.json(201, self.put(name, **meta.get("labels", {})))

    def _list(self, request: Request, wire: Wire) -> None:
        limit = int(request.query.get("limit", 10**9))
        token = request.query.get("continue", "")
        if token and self.expire_continue:
            self.expire_continue -= 1
            wire.error(410, "The provided continue parameter is too old", "Expired")
            return
        start = int(token or 0)
        items = list(self.objects.values())
        following = str(start + limit) if start + limit < len(items) else ""
        meta = {"resourceVersion": str(self.version), "continue": following}
        wire.json(200, {"kind": "PodList", "metadata": meta, "items": items[start : start + limit]})

    async def _watch(self, request: Request, wire: Wire) -> None:
        seen, sent = int(request.query["resourceVersion"]), 0
        if seen < self.oldest:
            wire.error(410, "too old resource version", "Expired")
            return
        wire.begin()
        while True:
            changed = self.changed
            for version, kind, value in list(self.history):
                if version > seen:
                    wire.chunk(json.dumps({"type": kind, "object": value}).encode() + b"\n")
                    seen, sent = version, sent + 1
                    if sent == self.watch_ends_after:
                        wire.end()
                        return
            await wire.writer.drain()
            await changed.wait()

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Kubernetes]:
        own = {name: options.pop(name) for name in ("at_once",) if name in options}
        own["patience_s"] = options.pop("patience_s", 20.0)
        options.setdefault("identity", Identity("tester", token="a-token"))
        access = Access(options.pop("server", self.url), namespace="ns", source="test", **options)
        async with Kubernetes(access, **own) as made:
            yield made


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        first_byte = await reader.readexactly(1)
        if first_byte == b"\x16":  # TLS, where plain HTTP is spoken
            raise NotHttp
        head = (first_byte + await reader.readuntil(b"\r\n\r\n")).decode()
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    return Request(method, parts.path, dict(parse_qsl(parts.query)), headers, body)


@asynccontextmanager
async def serving(stub: Stub, tls: ssl.SSLContext | None = None) -> AsyncIterator[Stub]:
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        await stub.serve(reader, writer)

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    stub.port = server.sockets[0].getsockname()[1]
    try:
        yield stub
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
