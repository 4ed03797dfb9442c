"""How a cluster is reached and as whom: data, from a kubeconfig or from inside a pod, whose repr shows no secret; and
the commands of a kubeconfig that print credentials (client-go's exec plugins)."""

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from seatrial.kubernetes.errors import CredentialsError
from seatrial.kubernetes.objects import UNDECODABLE, Manifest


@dataclass(frozen=True)
class Material:
    """A certificate or key: its PEM, or the file that holds it, which is read again when it changes."""

    data: bytes = field(default=b"", repr=False)
    file: Path | None = None

    def __bool__(self) -> bool:
        return bool(self.data) or self.file is not None

    def read(self) -> bytes:
        return self.data or (self.file.read_bytes() if self.file else b"")


class PluginVariable(msgspec.Struct, frozen=True):
    name: str
    value: str


class Plugin(msgspec.Struct, rename="camel", frozen=True):
    """A command that prints credentials: `exec` of a kubeconfig's user."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[PluginVariable, ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: Literal["Never", "IfAvailable", "Always"] = "IfAvailable"
    folder: Path | None = None  # what a relative command is relative to

    def __repr__(self) -> str:
        return f"Plugin({self.command!r})"


@dataclass(frozen=True)
class Identity:
    """As whom. Several may be given; the server takes a certificate before a token."""

    name: str = ""  # of the user in the kubeconfig
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    certificate: Material = Material()
    key: Material = Material()
    plugin: Plugin | None = None
    impersonate: tuple[tuple[str, str], ...] = ()  # headers


@dataclass(frozen=True)
class Access:
    """One cluster, one identity, one default namespace."""

    server: str  # without a slash at its end
    namespace: str = "default"
    context: str = ""
    source: str = ""  # the file that named the context, or "in-cluster"
    authority: Material = Material()  # nothing: the system's own
    insecure: bool = False
    tls_server_name: str = ""
    proxy_url: str = field(default="", repr=False)  # may hold a password
    compression: bool = True
    plugin_config: Any = None  # what the cluster's entry holds for plugins
    identity: Identity = Identity()


PLUGIN_S = 60.0  # a plugin that takes longer is ended
PERSON_S = 900.0  # the same for one that has said something: a person may have to enter a code elsewhere
STDERR_BYTES = 4000
ENDED_S, STREAMS_S = 0.02, 1.0


class Credential(msgspec.Struct, rename="camel", frozen=True):
    """The `status` of an ExecCredential."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None

    def valid_s(self) -> float:
        """For how long from now; without an expiry until the server refuses it."""
        if not self.expiration_timestamp:
            return float("inf")
        return datetime.fromisoformat(self.expiration_timestamp).timestamp() - time.time()


class ExecCredential(msgspec.Struct, rename="camel", frozen=True):
    api_version: str = ""
    kind: str = ""
    status: Credential | None = None


async def run_plugin(
    plugin: Plugin, access: Access, within_s: float = PLUGIN_S, person_s: float = PERSON_S
) -> Credential:
    """What the plugin prints. Its output is in no message; its stderr is, and is shown as it comes."""
    source = f"{access.source}: user {access.identity.name}: exec {plugin.command}"
    if plugin.interactive_mode == "Always":
        raise CredentialsError(source, "wants a terminal (interactiveMode: Always); log in with it first", lasting=True)
    command = _command(plugin)
    if command is None:
        hint = f": {plugin.install_hint.strip()}" if plugin.install_hint else ""
        raise CredentialsError(source, f"no such command{hint}", lasting=True)
    own = {one.name: one.value for one in plugin.env}
    env = {**os.environ, **own, "KUBERNETES_EXEC_INFO": _info(plugin, access)}
    try:
        process = await asyncio.create_subprocess_exec(
            command,
            *plugin.args,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            start_new_session=True,  # what it starts itself ends with it
        )
    except OSError as error:
        raise CredentialsError(source, f"cannot be started: {error.strerror}", lasting=True) from None
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = bytearray(), bytearray()
    shown = f"{Path(plugin.command).name}: "
    reading = [
        asyncio.create_task(_read(process.stdout, output)),
        asyncio.create_task(_read(process.stderr, errors, shown)),
    ]
    try:
        async with asyncio.timeout(within_s) as limit:
            # What it left running may hold its streams, for whose end `wait` would wait, and has no more to say.
            while process.returncode is None:
                await asyncio.sleep(ENDED_S)
                if errors and within_s < person_s:
                    within_s = person_s
                    limit.reschedule(asyncio.get_running_loop().time() + within_s)
            await asyncio.wait(reading, timeout=STREAMS_S)
    except TimeoutError:
        said = f" after it said: {_last(errors)}" if errors else ""
        raise CredentialsError(source, f"did not end within {within_s:g} s{said}") from None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    if process.returncode:
        text = _last(errors)
        raise CredentialsError(source, f"ended with exit code {process.returncode}" + (f": {text}" if text else ""))
    return _credential(source, plugin, output)


def _last(errors: bytearray) -> str:
    return errors[-STDERR_BYTES:].decode(errors="replace").strip()


async def _read(stream: asyncio.StreamReader, into: bytearray, shown: str = "") -> None:
    """To its end. With `shown`, line by line where a person sees it, too: it may be a code to log in with."""
    while block := await stream.read(1 << 16):
        if shown:
            for line in block.decode(errors="replace").splitlines():
                print(shown + line, file=sys.stderr, flush=True)
        into += block


def _credential(source: str, plugin: Plugin, output: bytes | bytearray) -> Credential:
    try:
        printed = msgspec.json.decode(output, type=ExecCredential)
    except UNDECODABLE as error:
        raise CredentialsError(source, f"did not print an ExecCredential in JSON: {error}") from None
    if printed.kind != "ExecCredential" or printed.api_version != plugin.api_version:
        problem = f"printed {printed.api_version} {printed.kind}, not {plugin.api_version} ExecCredential"
        raise CredentialsError(source, problem, lasting=True)
    found = printed.status
    if found is None or not (found.token or (found.client_certificate_data and found.client_key_data)):
        raise CredentialsError(source, "printed neither a token nor a client certificate with its key")
    try:
        found.valid_s()
    except ValueError:
        raise CredentialsError(source, f"printed an expiry that is no time: {found.expiration_timestamp}") from None
    return found


def _command(plugin: Plugin) -> str | None:
    """As kubectl finds it: a bare name by PATH, a relative path from the kubeconfig's folder."""
    if os.sep not in plugin.command:
        return shutil.which(plugin.command, path=next((one.value for one in plugin.env if one.name == "PATH"), None))
    path = (plugin.folder or Path()) / plugin.command
    return str(path) if path.exists() else None


def _info(plugin: Plugin, access: Access) -> str:
    spec: Manifest = {"interactive": False}
    if plugin.provide_cluster_info:
        cluster = {
            "server": access.server,
            "tls-server-name": access.tls_server_name,
            "insecure-skip-tls-verify": access.insecure,
            "certificate-authority-data": base64.b64encode(access.authority.read()).decode(),
            "proxy-url": access.proxy_url,
            "config": access.plugin_config,
        }
        spec["cluster"] = {key: value for key, value in cluster.items() if value}
    return msgspec.json.encode({"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}).decode()
