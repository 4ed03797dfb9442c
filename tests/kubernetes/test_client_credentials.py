"""Credentials that change, expire, fail, and the TLS that they travel over."""

import asyncio
import base64
import json
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from api_stub import Request, Stub, Wire, serving

from seatrial.http.relay import Relay, pump
from seatrial.kubernetes import (
    PODS,
    Access,
    CredentialsError,
    Identity,
    KubeconfigError,
    Kubernetes,
    KubernetesError,
    Material,
    Plugin,
    Unreachable,
)
from seatrial.kubernetes import credentials as credentials_module
from seatrial.kubernetes.credentials import run_plugin

V1 = "client.authentication.k8s.io/v1"


def script(path: Path, text: str) -> str:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return str(path)


def printing(tmp_path: Path, **status: str | None) -> Plugin:
    """A plugin that prints this, and counts how often it was run in `runs`, and keeps what it was told in `info`."""
    credential = {"apiVersion": V1, "kind": "ExecCredential", "status": status}
    text = f"""
import os, pathlib
runs = pathlib.Path({str(tmp_path / "runs")!r})
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
pathlib.Path({str(tmp_path / "info")!r}).write_text(os.environ["KUBERNETES_EXEC_INFO"])
print({json.dumps(json.dumps(credential))}.replace("N", str(len(runs.read_text()))))
"""
    return Plugin(script(tmp_path / "plugin", text))


async def only(stub: Stub, *headers: str) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        if request.headers.get("authorization") not in headers:
            wire.error(401, "Unauthorized", "Unauthorized")
        else:
            raise KeyError

    stub.override = answer


async def test_a_plugin_is_run_once_while_what_it_gave_is_valid(stub: Stub, tmp_path: Path) -> None:
    await only(stub, "Bearer token-1")
    plugin = printing(tmp_path, token="token-N", expirationTimestamp="2099-01-01T00:00:00Z")
    async with stub.client(identity=Identity("u", plugin=plugin)) as client:
        await asyncio.gather(*(client.version() for _ in range(20)))
    assert (tmp_path / "runs").read_text() == "x"
    assert json.loads((tmp_path / "info").read_text())["spec"] == {"interactive": False}


async def test_what_a_plugin_gave_is_renewed_before_it_expires(stub: Stub, tmp_path: Path) -> None:
    plugin = printing(tmp_path, token="token-N", expirationTimestamp="2020-01-01T00:00:00Z")
    async with stub.client(identity=Identity("u", plugin=plugin)) as client:
        for _ in range(3):
            await client.version()
    assert [request.headers["authorization"] for request in stub.requests] == [f"Bearer token-{n}" for n in (1, 2, 3)]


async def test_a_refused_token_is_renewed_once_by_its_plugin(stub: Stub, tmp_path: Path) -> None:
    await only(stub, "Bearer token-2")
    async with stub.client(identity=Identity("u", plugin=printing(tmp_path, token="token-N"))) as client:
        assert await client.version() == "v1.35.4"
        await only(stub, "Bearer never")
        with pytest.raises(
            CredentialsError, match=r"rejected the credentials.*they come from test: user u: exec .*plugin"
        ):
            await client.version()
    assert (tmp_path / "runs").read_text() == "xxx"


async def test_nulls_of_a_plugin_are_as_if_they_were_not_there(stub: Stub, tmp_path: Path) -> None:
    await only(stub, "Bearer token-1")
    nulls: dict[str, Any] = dict.fromkeys(("clientCertificateData", "clientKeyData", "expirationTimestamp"))
    async with stub.client(identity=Identity("u", plugin=printing(tmp_path, token="token-N", **nulls))) as client:
        assert await client.version() == "v1.35.4"


async def test_what_a_plugin_says_is_shown_while_it_still_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a code that a person is to enter elsewhere."""
    body = f"""
import pathlib, sys, time
print("enter the code ABCD", file=sys.stderr, flush=True)
while not pathlib.Path({str(tmp_path / "entered")!r}).exists():
    time.sleep(0.05)
print('{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {{"token": "t"}}}}')
"""
    plugin = Plugin(script(tmp_path / "plugin", body))
    running = asyncio.create_task(run_plugin(plugin, Access("http://x", identity=Identity("u", plugin=plugin))))
    said = ""
    async with asyncio.timeout(600):
        while "plugin: enter the code ABCD\n" not in said:
            await asyncio.sleep(0.05)
            said += capsys.readouterr().err
    (tmp_path / "entered").touch()
    assert (await running).token == "t"


async def test_a_plugin_that_has_said_something_gets_the_time_that_a_person_needs(tmp_path: Path) -> None:
    plugin = Plugin(str(tmp_path / "plugin"))
    (tmp_path / "plugin").write_text(f"""#!/bin/sh
echo enter the code ABCD >&2
sleep 2.3
echo '{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {{"token": "t"}}}}'
""")
    (tmp_path / "plugin").chmod(0o755)
    access = Access("http://x", identity=Identity("u", plugin=plugin))
    assert (await run_plugin(plugin, access, within_s=2)).token == "t"
    with pytest.raises(CredentialsError, match=r"timed out after 2 s; it printed: enter the code ABCD"):
        await run_plugin(plugin, access, within_s=1.5, person_s=2)


@pytest.mark.parametrize("ends", [True, False])
async def test_a_plugin_with_children_that_stay_keeps_its_limit_and_leaves_none(tmp_path: Path, ends: bool) -> None:
    """A child holds the streams: a plugin that has ended is not waited for, and one that does not is ended with it."""
    body = f"""
import pathlib, subprocess, time
child = subprocess.Popen(["sleep", "1000"])
pathlib.Path({str(tmp_path / "child")!r}).write_text(str(child.pid))
print('{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {{"token": "t"}}}}', flush=True)
{"" if ends else "time.sleep(1000)"}
"""
    plugin = Plugin(script(tmp_path / "plugin", body))
    access = Access("http://x", identity=Identity("u", plugin=plugin))
    async with asyncio.timeout(600):
        if ends:
            assert (await run_plugin(plugin, access)).token == "t"
        else:
            with pytest.raises(CredentialsError, match="timed out after 3 s"):
                await run_plugin(plugin, access, within_s=3)
        child = Path("/proc") / (tmp_path / "child").read_text()
        while child.exists() and ") Z" not in (child / "stat").read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_watch_and_a_command_renew_what_has_expired(stub: Stub, tmp_path: Path) -> None:
    async with stub.client(identity=Identity("u", plugin=printing(tmp_path, token="token-N"))) as client:
        stub.watch_ends_after = 1
        events = aiter(client.watch(PODS))
        await anext(events)
        await only(stub, "Bearer token-2")
        stub.put("one")
        event = await asyncio.wait_for(anext(events), 600)
        assert event.object is not None
        assert event.object.metadata.name == "one"
        await only(stub, "Bearer token-3")
        with pytest.raises(KubernetesError, match="refused its WebSocket"):
            await client.pod("one").run(["true"])
        await events.aclose()  # type: ignore[attr-defined]
    assert (tmp_path / "runs").read_text() == "xxx"


async def test_many_refused_at_once_renew_once(stub: Stub, tmp_path: Path) -> None:
    await only(stub, "Bearer token-2")
    async with stub.client(identity=Identity("u", plugin=printing(tmp_path, token="token-N"))) as client:
        await asyncio.gather(*(client.version() for _ in range(20)))
    assert (tmp_path / "runs").read_text() == "xx"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("import sys; print('see https://login', file=sys.stderr); sys.exit(7)", "exited 7: see https://login"),
        ("print('hello, secret')", "output is not an ExecCredential in JSON"),
        ("print('{}')", "expected client.authentication.k8s.io/v1 ExecCredential"),
        (f'print(\'{{"apiVersion":"{V1}","kind":"ExecCredential"}}\')', "neither a token nor a client certificate"),
        (
            f'print(\'{{"apiVersion":"{V1}","kind":"ExecCredential","status":{{"token":"secret","expirationTimestamp":"soon"}}}}\')',
            "an invalid expiry: soon",
        ),
        ("import time; time.sleep(60)", "timed out after 1 s"),
        ("print('x' * 10_000_000 + 'secret')", "output is not an ExecCredential in JSON"),
    ],
)
async def test_a_plugin_that_fails_is_told_by_what_it_said(tmp_path: Path, body: str, problem: str) -> None:
    plugin = Plugin(script(tmp_path / "plugin", body))
    access = Access("http://x", source="file", identity=Identity("jane", plugin=plugin))
    with pytest.raises(CredentialsError, match=r"^file: user jane: exec .*/plugin: ") as caught:
        await run_plugin(plugin, access, within_s=1 if "sleep" in body else 600)
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_plugin_that_is_not_installed_is_told_with_its_hint() -> None:
    plugin = Plugin("no-such-plugin", install_hint="brew install it\n")
    with pytest.raises(CredentialsError, match="plugin not found: brew install it"):
        await run_plugin(plugin, Access("http://x"))
    with pytest.raises(CredentialsError, match="needs a terminal"):
        await run_plugin(msgspec.structs.replace(plugin, interactive_mode="Always"), Access("http://x"))


async def test_a_plugin_gets_the_cluster_when_it_wants_it_and_is_found_beside_its_kubeconfig(tmp_path: Path) -> None:
    plugin = printing(tmp_path, token="t")
    plugin = msgspec.structs.replace(plugin, command="./plugin", folder=tmp_path, provide_cluster_info=True)
    access = Access("https://api:1", authority=Material(b"PEM"), plugin_config={"audience": "x"})
    assert (await run_plugin(plugin, access)).token == "t"
    cluster = json.loads((tmp_path / "info").read_text())["spec"]["cluster"]
    data = base64.b64encode(b"PEM").decode()
    assert cluster == {"server": "https://api:1", "certificate-authority-data": data, "config": {"audience": "x"}}


async def test_a_token_file_is_read_again_when_it_changes(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    async with stub.client(identity=Identity("u", token_file=file)) as client:
        await client.version()
        file.write_text("two\n")
        await only(stub, "Bearer two")
        await client.version()  # refused, read again, asked again
        monkeypatch.setattr(credentials_module, "REREAD_S", 0.0)
        file.write_text("three\n")
        await only(stub, "Bearer three")
        client.connection.credentials._fresh_until = 0.0
        await client.version()
        file.unlink()
        await client.version()  # the last one that could be read
    sent = [request.headers["authorization"] for request in stub.requests]
    assert sent == ["Bearer one", "Bearer one", "Bearer two", "Bearer three", "Bearer three"]


async def test_an_empty_token_file_is_told(stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("")
    async with stub.client(identity=Identity("u", token_file=tmp_path / "token")) as client:
        with pytest.raises(CredentialsError, match="token: the token file is empty"):
            await client.version()


async def test_a_name_and_a_password_go_as_basic(stub: Stub) -> None:
    async with stub.client(identity=Identity("u", username="jane", password="pass:word")) as client:
        await client.version()
    assert stub.requests[0].headers["authorization"] == f"Basic {base64.b64encode(b'jane:pass:word').decode()}"


async def test_a_token_cannot_smuggle_headers(stub: Stub) -> None:
    async with stub.client(identity=Identity("u", token="x\r\nImpersonate-User: root")) as client:
        with pytest.raises(CredentialsError, match="line break"):
            await client.version()
    assert not stub.requests


# TLS


@dataclass(frozen=True)
class Pki:
    folder: Path

    def pem(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def server(self, name: str = "server", mutual: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        if mutual:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.folder / "ca.crt")
        return context

    def access(self, stub: Stub, **fields: object) -> Access:
        access = Access(f"https://127.0.0.1:{stub.port}", source="file", authority=Material(self.pem("ca.crt")))
        return replace(access, **fields)  # type: ignore[arg-type]

    def identity(self) -> Identity:
        return Identity("u", certificate=Material(self.pem("client.crt")), key=Material(self.pem("client.key")))


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl to make certificates")
    folder = tmp_path_factory.mktemp("pki")

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for name in ("ca", "stranger"):
        out = ["-keyout", f"{name}.key", "-out", f"{name}.crt"]
        openssl("req", "-x509", *new_key, "-days", "30", "-subj", f"/CN={name}", *out)
    for name, alternative, begin in (
        ("server", "IP:127.0.0.1,DNS:localhost", "0"),
        ("elsewhere", "DNS:api.example", "0"),
        ("expired", "IP:127.0.0.1", "-1"),
        ("client", "DNS:client", "0"),
    ):
        openssl("req", *new_key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        (folder / "ext").write_text(f"subjectAltName={alternative}\n")
        days = ["-days", "30"] if begin == "0" else ["-days", "-1"]
        signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "ext"]
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, *days, "-out", f"{name}.crt")
    openssl("ec", "-in", "client.key", "-aes128", "-passout", "pass:secret", "-out", "locked.key")
    return Pki(folder)


@asynccontextmanager
async def connected(access: Access) -> AsyncIterator[Kubernetes]:
    async with Kubernetes(access, patience_s=0) as client:
        yield client


async def test_the_clusters_own_authority_is_trusted_and_a_client_certificate_shown(pki: Pki) -> None:
    async with serving(Stub(), pki.server(mutual=True)) as stub:
        async with connected(pki.access(stub, identity=pki.identity())) as client:
            assert await client.version() == "v1.35.4"
        files = Identity(
            "u",
            certificate=Material(file=pki.folder / "client.crt"),
            key=Material(file=pki.folder / "client.key"),
        )
        authority = Material(file=pki.folder / "ca.crt")
        async with connected(pki.access(stub, identity=files, authority=authority)) as client:
            assert await client.version() == "v1.35.4"


async def test_a_certificate_from_a_plugin_is_shown(pki: Pki, tmp_path: Path) -> None:
    status = {"clientCertificateData": pki.pem("client.crt").decode(), "clientKeyData": pki.pem("client.key").decode()}
    credential = {"apiVersion": V1, "kind": "ExecCredential", "status": status}
    plugin = Plugin(script(tmp_path / "plugin", f"print({json.dumps(credential)!r})"))
    identity = Identity("u", plugin=plugin)
    async with (
        serving(Stub(), pki.server(mutual=True)) as stub,
        connected(pki.access(stub, identity=identity)) as client,
    ):
        assert await client.version() == "v1.35.4"


@pytest.mark.parametrize(
    ("certificate", "fields", "words"),
    [
        ("elsewhere", {}, r"certificate is not trusted: .*mismatch.*set `tls-server-name`"),
        ("expired", {}, r"certificate has expired; renew the server's certificate, or check this machine's clock"),
        ("stranger", {}, r"not signed by .certificate-authority. in the kubeconfig"),
    ],
)
async def test_a_server_that_cannot_be_trusted_is_told_in_plain_words(
    pki: Pki, certificate: str, fields: dict[str, object], words: str
) -> None:
    async with serving(Stub(), pki.server(certificate)) as stub, Kubernetes(pki.access(stub, **fields)) as client:
        with pytest.raises(Unreachable, match=words) as caught:
            await client.version()  # at once: patience does not help
    assert caught.value.lasting


async def test_the_name_to_verify_and_not_to_verify_are_as_the_file_says(pki: Pki) -> None:
    async with serving(Stub(), pki.server("elsewhere")) as stub:
        async with connected(pki.access(stub, tls_server_name="api.example")) as client:
            assert await client.version() == "v1.35.4"
        async with connected(pki.access(stub, insecure=True, authority=Material())) as client:
            assert await client.version() == "v1.35.4"


async def test_tls_and_plain_http_mixed_up_are_told(pki: Pki, stub: Stub) -> None:
    async with connected(pki.access(stub)) as client:
        with pytest.raises(Unreachable, match=r"does not use TLS on this port|TLS failed"):
            await client.version()


async def test_a_refused_client_certificate_is_told(pki: Pki) -> None:
    async with serving(Stub(), pki.server(mutual=True)) as stub, connected(pki.access(stub)) as client:
        with pytest.raises(Unreachable, match=r"client certificate|closed the connection|connection broke"):
            await client.version()


async def test_keys_that_do_not_fit_are_told_before_anything_is_asked(pki: Pki) -> None:
    certificate = Material(pki.pem("client.crt"))
    for key, words in (("server.key", "KEY_VALUES_MISMATCH"), ("locked.key", "keys with a password"), ("ca.crt", "")):
        identity = Identity("u", certificate=certificate, key=Material(pki.pem(key)))
        async with connected(Access("https://127.0.0.1:1", source="file", identity=identity)) as client:
            with pytest.raises(
                KubeconfigError, match=rf"^file: user u: cannot use client-certificate with client-key.*{words}"
            ):
                await client.version()
    async with connected(Access("https://127.0.0.1:1", source="file", authority=Material(b"-----BEGIN x"))) as client:
        with pytest.raises(KubeconfigError, match=r"^file: certificate-authority: invalid"):
            await client.version()
    assert not [name for name in os.listdir("/proc/self/fd") if "pem" in os.path.realpath(f"/proc/self/fd/{name}")]


# Proxies


@asynccontextmanager
async def proxy(kind: str, seen: list[bytes]) -> AsyncIterator[str]:
    """A proxy of HTTP's CONNECT or of SOCKS5 that leads to 127.0.0.1 whatever the name."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        ends = [writer]
        try:
            if kind == "http":
                head = await reader.readuntil(b"\r\n\r\n")
                seen.append(head)
                port = int(head.split(b" ")[1].rpartition(b":")[2])
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                count = (await reader.readexactly(2))[1]
                methods = await reader.readexactly(count)
                writer.write(b"\x05" + methods[:1])
                if methods == b"\x02":
                    seen.append(await reader.readexactly(2 + 4 + 1 + 4))
                    writer.write(b"\x01\x00")
                name = await reader.readexactly((await reader.readexactly(5))[4])
                seen.append(name)
                port = int.from_bytes(await reader.readexactly(2), "big")
                writer.write(b"\x05\x00\x00\x01" + bytes(6))
            far_reader, far = await asyncio.open_connection("127.0.0.1", port)
            ends.append(far)
            await asyncio.gather(pump(reader, far), pump(far_reader, writer))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            for end in ends:
                end.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_http_proxy_is_asked_to_connect(pki: Pki) -> None:
    seen: list[bytes] = []
    async with serving(Stub(), pki.server()) as stub, proxy("http", seen) as place:
        async with connected(pki.access(stub, proxy_url=f"http://{place}")) as client:
            assert await client.version() == "v1.35.4"
        assert seen[0].startswith(f"CONNECT 127.0.0.1:{stub.port} ".encode())


async def test_a_socks_proxy_resolves_names_itself(pki: Pki) -> None:
    seen: list[bytes] = []
    async with serving(Stub(), pki.server("elsewhere")) as stub, proxy("socks5", seen) as place:
        access = pki.access(stub, server=f"https://api.example:{stub.port}", proxy_url=f"socks5://{place}")
        async with connected(access) as client:
            assert set(await asyncio.gather(client.version(), client.version())) == {"v1.35.4"}
        async with connected(replace(access, proxy_url=f"socks5h://user:pass@{place}")) as client:
            assert await client.version() == "v1.35.4"
    assert seen[0] == b"api.example"
    assert seen[-2] == b"\x01\x04user\x04pass"


async def test_a_proxy_that_is_not_there_is_told(pki: Pki, stub: Stub) -> None:
    async with connected(pki.access(stub, proxy_url="http://127.0.0.1:1")) as client:
        with pytest.raises(Unreachable, match=r"the proxy http://127.0.0.1:1 cannot be reached"):
            await client.version()
    async with connected(pki.access(stub, proxy_url="socks5://127.0.0.1:1")) as client:
        with pytest.raises(Unreachable, match=r"the proxy socks5://127.0.0.1:1 cannot be reached"):
            await client.version()


async def test_a_relay_that_is_closed_listens_no_more() -> None:
    relay = Relay("socks5://127.0.0.1:1", "https://x:1")
    await relay.open()
    await relay.close()
    with pytest.raises(OSError, match=r"refused|Connect"):
        await asyncio.open_connection(relay.host, relay.port)
