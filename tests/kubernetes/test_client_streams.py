"""WebSockets that end in the wrong place, archives that lie."""

import asyncio
import io
import json
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from api_stub import Request, Stub, Wire

from seatrial.kubernetes import Access, ApiError, CommandFailed, Forbidden, Kubernetes, KubernetesError
from seatrial.kubernetes import pod as files_module

Talk = Callable[[web.WebSocketResponse, web.Request], Awaitable[None]]
SUCCESS = b"\x03" + json.dumps({"status": "Success"}).encode()


def failure(**fields: object) -> bytes:
    return b"\x03" + json.dumps({"status": "Failure", **fields}).encode()


@asynccontextmanager
async def talking(talk: Talk, protocols: tuple[str, ...] = ("v5.channel.k8s.io",)) -> AsyncIterator[Kubernetes]:
    """A server that takes WebSockets and then does as `talk`; without an upgrade it answers as a real one."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return web.json_response({"kind": "Status", "message": "Upgrade request required", "code": 400}, status=400)
        socket = web.WebSocketResponse(protocols=protocols)
        await socket.prepare(request)
        await talk(socket, request)
        return socket

    app = web.Application()
    app.router.add_get("/{tail:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with Kubernetes(Access(f"http://127.0.0.1:{port}", namespace="ns"), patience_s=0) as client:
            yield client
    finally:
        await runner.cleanup()


async def test_streams_and_result_are_told_apart() -> None:
    async def talk(socket: web.WebSocketResponse, request: web.Request) -> None:
        assert request.query.getall("command") == ["sh", "-c", "a b & c"]
        for frame in (b"\x01out", b"\x02err", b"\x01", b"\x01put", b"\x07strange", b""):
            await socket.send_bytes(frame)
        await socket.send_str("text is not ours")
        causes = {"causes": [{"reason": "ExitCode", "message": "3"}]}
        await socket.send_bytes(failure(reason="NonZeroExitCode", details=causes))

    async with talking(talk) as client:
        assert await client.pod("p").run(["sh", "-c", "a b & c"]) == (3, b"output", b"err")


async def test_a_connection_that_ends_without_a_result_is_no_success() -> None:
    async def talk(socket: web.WebSocketResponse, request: web.Request) -> None:
        await socket.send_bytes(b"\x01all is well")

    async with talking(talk) as client:
        with pytest.raises(KubernetesError, match="sh in pod ns/p: the connection ended before the command's result"):
            await client.pod("p").run(["sh"])


async def test_a_connection_that_is_reset_is_no_success() -> None:
    async def talk(socket: web.WebSocketResponse, request: web.Request) -> None:
        await socket.send_bytes(b"\x01all is well")
        assert request.transport is not None
        request.transport.abort()

    async with talking(talk) as client:
        with pytest.raises(KubernetesError, match="before the command's result arrived"):
            await client.pod("p").run(["sh"])


async def test_nonsense_as_a_result_is_told() -> None:
    async def talk(socket: web.WebSocketResponse, request: web.Request) -> None:
        await socket.send_bytes(b"\x03nonsense")

    async with talking(talk) as client:
        with pytest.raises(KubernetesError, match="invalid result: b'nonsense'"):
            await client.pod("p").run(["sh"])


async def test_a_runtime_that_fails_is_no_exit_code() -> None:
    async def talk(socket: web.WebSocketResponse, request: web.Request) -> None:
        await socket.send_bytes(failure(code=500, reason="InternalError", message="container is stopping"))

    async with talking(talk) as client:
        with pytest.raises(ApiError, match=r"cannot create pods/exec p in namespace ns: container is stopping \(500"):
            await client.pod("p").run(["sh"])


async def test_why_a_websocket_is_refused_is_asked_for(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        wire.error(
            403, 'User "u" cannot create resource "pods/exec" in API group "" in the namespace "ns"', "Forbidden"
        )

    stub.override = answer
    async with stub.client() as client:
        with pytest.raises(Forbidden, match="lacks permission to create pods/exec in namespace ns"):
            await client.pod("p").run(["true"])


async def test_a_proxy_that_knows_no_websockets_is_told(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        wire.json(200, {})

    stub.override = answer
    async with stub.client() as client:
        with pytest.raises(KubernetesError, match=r"refused its WebSocket \(200\)"):
            await client.pod("p").run(["true"])


def archive(*members: tuple[str, bytes], **links: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as opened:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            opened.addfile(info, io.BytesIO(data))
        for name, goal in links.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, goal
            opened.addfile(info)
        device = tarfile.TarInfo("device")
        device.type = tarfile.CHRTYPE
        opened.addfile(device)
    return out.getvalue()


def sending(data: bytes, result: bytes = SUCCESS) -> Talk:
    async def talk(socket: web.WebSocketResponse, request: web.Request) -> None:
        for start in range(0, len(data), 1000):
            await socket.send_bytes(b"\x01" + data[start : start + 1000])
        await socket.send_bytes(result)

    return talk


async def test_an_archive_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    data = archive(
        ("good/file", b"x"),
        ("../escaped", b"x"),
        ("/absolute", b"x"),
        ("good/../../up", b"x"),
        inside="good/file",
        outside="../../secret",
        passwd="/etc/passwd",
    )
    (tmp_path / "in").mkdir()
    async with talking(sending(data)) as client:
        skipped = await client.pod("p").fetch_folder("/x", tmp_path / "in" / "got")
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert [path for path in found if not path.startswith("in/got")] == ["in"]
    assert (tmp_path / "in" / "got" / "good" / "file").read_text() == "x"
    assert {"../escaped", "outside", "passwd", "device"} <= set(skipped)


async def test_an_archive_that_is_cut_anywhere_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "TRIES", 1)
    data = archive(("one", b"1" * 700), ("two", b"2" * 700))
    whole = len(data.rstrip(b"\0"))
    for cut in range(0, whole, 256):
        async with talking(sending(data[:cut])) as client:
            with pytest.raises(KubernetesError, match="the archive is truncated"):
                await client.pod("p").fetch_folder("/x", tmp_path / "got")
    assert not list(tmp_path.iterdir())


async def test_a_folder_is_asked_for_again_until_it_is_whole(tmp_path: Path) -> None:
    data, cuts = archive(("one", b"1" * 700)), [600, 1300]

    async def talk(socket: web.WebSocketResponse, request: web.Request) -> None:
        await sending(data[: cuts.pop()] if cuts else data)(socket, request)

    async with talking(talk) as client:
        await client.pod("p").fetch_folder("/x", tmp_path / "got")
    assert (tmp_path / "got" / "one").read_bytes() == b"1" * 700
    assert [path.name for path in tmp_path.iterdir()] == ["got"]


async def test_an_image_without_the_command_is_told(tmp_path: Path) -> None:
    async def talk(socket: web.WebSocketResponse, request: web.Request) -> None:
        await socket.send_bytes(failure(message='exec: "tar": executable file not found in $PATH: unknown'))

    async with talking(talk) as client:
        with pytest.raises(CommandFailed, match=r"tar for /x of pod ns/p exited 127: .*not found in \$PATH"):
            await client.pod("p").fetch_folder("/x", tmp_path / "got")


async def test_a_forwarded_port_keeps_bytes_and_ends_with_its_pod() -> None:
    async def talk(socket: web.WebSocketResponse, request: web.Request) -> None:
        assert request.query["ports"] == "80"
        for channel in (0, 1):
            await socket.send_bytes(bytes([channel]) + (80).to_bytes(2, "little"))
        async for message in socket:
            await socket.send_bytes(b"\x00" + message.data[1:].upper())
            if b"bye" in message.data:
                break
        await socket.close()

    async with talking(talk, ("v4.channel.k8s.io",)) as client, client.pod("p").forward(80) as forward:
        reader, writer = await asyncio.open_connection(forward.host, forward.port)
        writer.write(b"hello ")
        assert await reader.readexactly(6) == b"HELLO "
        writer.write(b"bye")
        assert await reader.read() == b"BYE"
        writer.close()
        assert forward.address == f"127.0.0.1:{forward.port}"
        assert not forward.problem
