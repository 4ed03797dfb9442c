"""Credentials that renew themselves: tokens and certificates from files and plugins."""

import asyncio
import base64
import os
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from multidict import CIMultiDict

from seatrial.kubernetes.access import Access, Credential, Material, run_plugin
from seatrial.kubernetes.errors import CredentialsError, KubeconfigError

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


@contextmanager
def _as_file(material: Material) -> Iterator[str]:
    """A path for OpenSSL. Inline keys use memory, or a file that only we can read."""
    if material.file is not None:
        yield str(material.file)
        return
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(material.data)
            file.flush()
            yield file.name
        return
    number = os.memfd_create("pem")
    try:
        os.write(number, material.data)
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)
