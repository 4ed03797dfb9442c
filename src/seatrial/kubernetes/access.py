"""Address and identity for a cluster, from a kubeconfig or from inside a pod, and credential plugins (`exec`).

The repr of these classes shows no secret.
"""

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
    """A certificate or key: PEM data, or a file that is read again when it changes."""

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
    """A command that prints credentials: `exec` of a user in a kubeconfig."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[PluginVariable, ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: Literal["Never", "IfAvailable", "Always"] = "IfAvailable"
    folder: Path | None = None  # base of a relative command

    def __repr__(self) -> str:
        return f"Plugin({self.command!r})"


@dataclass(frozen=True)
class Identity:
    """Credentials of a user. With several, the server prefers a certificate to a token."""

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
    authority: Material = Material()  # empty: those of the system
    insecure: bool = False
    tls_server_name: str = ""
    proxy_url: str = field(default="", repr=False)  # may hold a password
    compression: bool = True
    plugin_config: Any = None  # settings for plugins in the cluster's entry
    identity: Identity = Identity()


PLUGIN_S = 60.0  # time limit of a plugin
PERSON_S = 900.0  # time limit of a plugin that has printed something: a user may have to enter a code elsewhere
STDERR_BYTES = 4000
ENDED_S, STREAMS_S = 0.02, 1.0


class Credential(msgspec.Struct, rename="camel", frozen=True):
    """The `status` of an ExecCredential."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None

    def valid_s(self) -> float:
        """Remaining validity in seconds; infinite without an expiry."""
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
    """Runs the plugin and returns the credential that it prints. Errors never contain its stdout; its stderr is in them
    and is printed while the plugin runs."""
    source = f"{access.source}: user {access.identity.name}: exec {plugin.command}"
    if plugin.interactive_mode == "Always":
        raise CredentialsError(source, "needs a terminal (interactiveMode: Always); log in with it first", lasting=True)
    command = _command(plugin)
    if command is None:
        hint = f": {plugin.install_hint.strip()}" if plugin.install_hint else ""
        raise CredentialsError(source, f"plugin not found{hint}", lasting=True)
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
            start_new_session=True,  # so that its child processes are killed with it
        )
    except OSError as error:
        raise CredentialsError(source, f"cannot start: {error.strerror}", lasting=True) from None
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
            # Processes that it left running may keep its streams open, and `wait` would wait for those.
            while process.returncode is None:
                await asyncio.sleep(ENDED_S)
                if errors and within_s < person_s:
                    within_s = person_s
                    limit.reschedule(asyncio.get_running_loop().time() + within_s)
            await asyncio.wait(reading, timeout=STREAMS_S)
    except TimeoutError:
        printed = f"; it printed: {_last(errors)}" if errors else ""
        raise CredentialsError(source, f"timed out after {within_s:g} s{printed}") from None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    if process.returncode:
        text = _last(errors)
        raise CredentialsError(source, f"exited {process.returncode}" + (f": {text}" if text else ""))
    return _credential(source, plugin, output)


def _last(errors: bytearray) -> str:
    return errors[-STDERR_BYTES:].decode(errors="replace").strip()


async def _read(stream: asyncio.StreamReader, into: bytearray, shown: str = "") -> None:
    """Reads a stream to its end. With `shown`, also prints it with this prefix: it may be a login code."""
    while block := await stream.read(1 << 16):
        if shown:
            for line in block.decode(errors="replace").splitlines():
                print(shown + line, file=sys.stderr, flush=True)
        into += block


def _credential(source: str, plugin: Plugin, output: bytes | bytearray) -> Credential:
    try:
        printed = msgspec.json.decode(output, type=ExecCredential)
    except UNDECODABLE as error:
        raise CredentialsError(source, f"output is not an ExecCredential in JSON: {error}") from None
    if printed.kind != "ExecCredential" or printed.api_version != plugin.api_version:
        problem = f"printed {printed.api_version} {printed.kind} (expected {plugin.api_version} ExecCredential)"
        raise CredentialsError(source, problem, lasting=True)
    found = printed.status
    if found is None or not (found.token or (found.client_certificate_data and found.client_key_data)):
        raise CredentialsError(source, "printed neither a token nor a client certificate with its key")
    try:
        found.valid_s()
    except ValueError:
        raise CredentialsError(source, f"printed an invalid expiry: {found.expiration_timestamp}") from None
    return found


def _command(plugin: Plugin) -> str | None:
    """Path of the command, as for kubectl: a bare name from PATH, a relative path from the kubeconfig's folder."""
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
