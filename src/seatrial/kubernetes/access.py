"""Address and identity for a cluster, from a kubeconfig or from inside a pod.

The repr of these classes shows no secret.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec


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
