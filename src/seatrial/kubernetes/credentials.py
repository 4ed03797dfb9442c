"""Credentials that renew themselves: tokens and certificates from files and plugins (`exec`)."""

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import ssl
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec
from multidict import CIMultiDict

from seatrial.kubernetes.access import Access, Material, Plugin
from seatrial.kubernetes.errors import STDERR_BYTES, CredentialsError, KubeconfigError
from seatrial.kubernetes.objects import UNDECODABLE, Manifest

REREAD_S = 10.0  # interval for reading files again; a kubelet renews tokens long before they expire
LEEWAY_S = 10.0  # a plugin's credentials are renewed this long before they expire


class Credentials:
    """Headers and TLS context of requests, loaded again only when stale."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.headers: CIMultiDict[str] = CIMultiDict()
        self.tls: ssl.SSLContext | None = None
        self._fresh_until = float("-inf")  # by the monotonic clock
        self._tls_of: tuple[object, ...] | None = None
        self._credential: Credential | None = None
        self._expires = float("inf")
        self.generation = 0
        self._turn = asyncio.Lock()

    @property
    def source(self) -> str:
        """Where the credentials come from, for messages."""
        identity = self.access.identity
        if identity.plugin:
            return f"{self.access.source}: user {identity.name}: exec {identity.plugin.command}"
        return str(identity.token_file or f"{self.access.source}: user {identity.name or '(none)'}")

    @property
    def stale(self) -> bool:
        return time.monotonic() >= self._fresh_until

    async def refresh(self) -> None:
        """Reloads stale credentials. Concurrent callers wait and get the same."""
        async with self._turn:
            if self.stale:
                await self._load()

    async def renew(self, generation: int) -> bool:
        """Gets new credentials after a 401 for that generation. False if they cannot change."""
        identity = self.access.identity
        if not (identity.plugin or identity.token_file or identity.certificate.file):
            return False
        async with self._turn:
            if self.generation == generation:
                self._credential = None
                await self._load()
        return True

    async def _load(self) -> None:
        identity, now = self.access.identity, time.monotonic()
        if identity.plugin and (self._credential is None or now >= self._expires - LEEWAY_S):
            self._credential = await run_plugin(identity.plugin, self.access)
            self._expires = time.monotonic() + self._credential.valid_s()
        self.headers = self._new_headers()
        certificate, key, given = identity.certificate, identity.key, self._credential
        if given and given.client_certificate_data and given.client_key_data:
            certificate = Material(given.client_certificate_data.encode())
            key = Material(given.client_key_data.encode())
        state = (_state(self.access.authority), _state(certificate), _state(key))
        if self._tls_of is None or state != self._tls_of:
            self.tls, self._tls_of = tls_context(self.access, certificate, key), state
        files = (identity.token_file, self.access.authority.file, certificate.file)
        reread = time.monotonic() + REREAD_S if any(files) else float("inf")
        # A plugin that returns nearly expired credentials runs again for each request, but not more often.
        self._fresh_until = min(reread, self._expires - LEEWAY_S)
        self.generation += 1

    def _new_headers(self) -> CIMultiDict[str]:
        identity = self.access.identity
        headers: CIMultiDict[str] = CIMultiDict()
        token = self._credential.token if self._credential and self._credential.token else identity.token
        if identity.token_file:
            token = self._read_token(identity.token_file) or token
        if token:
            headers["Authorization"] = f"Bearer {token}"
        elif identity.username:
            pair = f"{identity.username}:{identity.password}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        for name, value in identity.impersonate:
            headers.add(name, value)
        if any("\n" in value or "\r" in value for value in headers.values()):
            raise CredentialsError(self.source, "the token contains a line break", lasting=True)
        return headers

    def _read_token(self, file: Path) -> str:
        try:
            token = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            if "Authorization" in self.headers:  # keep the last readable token, as client-go does
                return self.headers["Authorization"].removeprefix("Bearer ")
            raise CredentialsError(str(file), f"cannot read the token: {error}") from None
        if not token and not self.access.identity.token:
            raise CredentialsError(str(file), "the token file is empty")
        return token


def tls_context(access: Access, certificate: Material, key: Material) -> ssl.SSLContext | None:
    """A context that trusts only the cluster's authority, or those of the system if the cluster names none."""
    if not access.server.startswith("https:"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if access.insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif access.authority:
        try:
            context.load_verify_locations(cadata=access.authority.read().decode())
        except (OSError, ssl.SSLError, ValueError) as error:
            raise KubeconfigError(access.source, "certificate-authority", f"invalid: {_problem(error)}") from None
    else:
        context.load_default_certs()
    if certificate:
        try:
            with _as_file(certificate) as chain, _as_file(key) as private:
                context.load_cert_chain(chain, private, password=_no_password)
        except (OSError, ssl.SSLError, ValueError) as error:
            problem = f"cannot use client-certificate with client-key: {_problem(error)}"
            raise KubeconfigError(access.source, f"user {access.identity.name}", problem) from None
    return context


def _problem(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)


def _no_password() -> str:
    raise ValueError("the key is encrypted; keys with a password are not supported (nor by kubectl)")


def _state(material: Material) -> object:
    """A value that changes with the material."""
    if material.file is None:
        return material.data
    try:
        found = material.file.stat()
    except OSError:
        return None
    return material.file, found.st_mtime_ns, found.st_size, found.st_ino


@contextlib.contextmanager
def _as_file(material: Material) -> Iterator[str]:
    """A path for OpenSSL. Inline keys stay in memory."""
    if material.file is not None:
        yield str(material.file)
        return
    number = os.memfd_create("pem")
    try:
        os.write(number, material.data)
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)


PLUGIN_S = 60.0  # time limit of a plugin
PERSON_S = 900.0  # time limit of a plugin that has printed something: a user may have to enter a code elsewhere
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
