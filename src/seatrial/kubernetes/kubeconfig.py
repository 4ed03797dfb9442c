"""Reads kubeconfigs: one file, the list in KUBECONFIG merged as by kubectl, or the service account of a pod.

1. An explicit file must exist; files in KUBECONFIG may be missing, as for kubectl.
2. A cluster, context or user comes completely from the first file that has it; the first `current-context` wins.
3. Paths in a file are relative to that file.
4. Every error names the file and the field, but no value that may be secret. A server is unverified only if the file
   says so.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from seatrial.kubernetes.access import Access, Identity, Material, Plugin
from seatrial.kubernetes.errors import KubeconfigError

SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
PLUGIN_EXTENSION = "client.authentication.k8s.io/exec"
_MOST_BYTES = 8 << 20


class ClusterSettings(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: list[dict[str, Any]] = []


class ContextSettings(msgspec.Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class AuthProvider(msgspec.Struct):
    name: str = ""
    config: dict[str, Any] = {}


class ExecSettings(Plugin, rename="camel", frozen=True):
    api_version: str = ""  # must be written


class UserSettings(msgspec.Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    as_: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}
    exec: ExecSettings | None = None
    auth_provider: AuthProvider | None = None


_T = TypeVar("_T", bound=msgspec.Struct)


@dataclass(frozen=True)
class Entry(Generic[_T]):
    """One cluster, context or user, with its file and field."""

    file: Path
    field: str
    values: _T

    def error(self, name: str, problem: str) -> KubeconfigError:
        return KubeconfigError(str(self.file), f"{self.field}.{name}", problem)

    def material(self, name: str) -> Material:
        """`NAME-data` (base64 of PEM), else the file in `NAME`, as for kubectl. Raises if it is missing or invalid."""
        attribute = name.replace("-", "_")
        if inline := getattr(self.values, f"{attribute}_data"):
            try:
                data = base64.b64decode("".join(inline.split()), validate=True)
            except (binascii.Error, ValueError) as error:
                raise self.error(f"{name}-data", f"invalid base64: {error}") from None
            if b"-----BEGIN" not in data:
                raise self.error(f"{name}-data", "invalid PEM in base64")
            return Material(data)
        return Material(file=self.existing_file(name, getattr(self.values, attribute)))

    def existing_file(self, name: str, path: str) -> Path | None:
        if not path:
            return None
        file = self.file.parent / path  # an absolute path stays as it is
        if not file.is_file():
            raise self.error(name, f"file not found: {file}")
        return file


def load_access(
    path: str | Path | None = None, context: str | None = None, env: Mapping[str, str] | None = None
) -> Access:
    """The access that kubectl would use: `path`, else KUBECONFIG, else ~/.kube/config, else that of this pod."""
    env = os.environ if env is None else env
    if path is not None:
        return _read([Path(path).expanduser()], context)
    listed = [Path(part).expanduser() for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]
    files = listed or [Path(env.get("HOME") or "~").expanduser() / ".kube" / "config"]
    if existing := [file for file in files if file.exists()]:
        return _read(existing, context)
    if env.get("KUBERNETES_SERVICE_HOST") and not context:
        return in_cluster(env)
    where = ", ".join(map(str, files))
    raise KubeconfigError(where, "", "kubeconfig not found, and this is not a pod; set KUBECONFIG or `kubeconfig`")


def in_cluster(env: Mapping[str, str], folder: Path = SERVICE_ACCOUNT_FOLDER) -> Access:
    """Access from inside a pod: the service account's token, which the kubelet renews, and the cluster's authority."""
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT", "443")
    for name in ("token", "ca.crt"):
        if not (folder / name).exists():
            problem = "not found: the pod has no service account token; check `automountServiceAccountToken`"
            raise KubeconfigError(str(folder / name), "", problem)
    namespace = folder / "namespace"
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        context="in-cluster",
        source="in-cluster",
        authority=Material(file=folder / "ca.crt"),
        identity=Identity("service account", token_file=folder / "token"),
    )


def _read(files: list[Path], name: str | None) -> Access:
    """Access for the context `name` in these files, or for the current context."""
    current, listed = "", ", ".join(map(str, files))
    clusters: dict[str, Entry[ClusterSettings]] = {}
    contexts: dict[str, Entry[ContextSettings]] = {}
    users: dict[str, Entry[UserSettings]] = {}
    for file in files:
        document = _document(file)
        named = document.get("current-context")
        if named is not None and not isinstance(named, str):
            raise KubeconfigError(str(file), "current-context", f"expected `str`, got {named!r}")
        current = current or named or ""
        clusters = _entries(file, document, "clusters", ClusterSettings) | clusters
        contexts = _entries(file, document, "contexts", ContextSettings) | contexts
        users = _entries(file, document, "users", UserSettings) | users
    names = ", ".join(sorted(contexts)) or "none"
    chosen, place = name or current, "contexts" if name else "current-context"
    if not chosen:
        raise KubeconfigError(listed, place, f"not set; choose a context: {names}")
    if chosen not in contexts:
        raise KubeconfigError(listed, place, f"unknown context {chosen!r}; known: {names}")
    context = contexts[chosen]
    cluster = _referenced(clusters, context, "cluster")
    authority = cluster.material("certificate-authority")
    if authority and cluster.values.insecure_skip_tls_verify:
        raise cluster.error("insecure-skip-tls-verify", "cannot be combined with certificate-authority")
    extensions = cluster.values.extensions
    user = _referenced(users, context, "user") if context.values.user else None
    return Access(
        server=_server(cluster),
        namespace=context.values.namespace or "default",
        context=chosen,
        source=str(context.file),
        authority=authority,
        insecure=cluster.values.insecure_skip_tls_verify,
        tls_server_name=cluster.values.tls_server_name,
        proxy_url=_proxy_url(cluster),
        compression=not cluster.values.disable_compression,
        plugin_config=next((one.get("extension") for one in extensions if one.get("name") == PLUGIN_EXTENSION), None),
        identity=_identity(context.values.user, user) if user else Identity(),
    )


def _document(file: Path) -> Mapping[str, Any]:
    import yaml

    from seatrial.limited_yaml import load_all

    try:
        with open(file, "rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise KubeconfigError(str(file), "", f"larger than {_MOST_BYTES >> 20} MiB")
        documents = load_all(data)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        problem = "kubeconfig not found" if missing else f"cannot read the kubeconfig: {error.strerror}"
        raise KubeconfigError(str(file), "", problem) from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid date
        # The problem and its position, never the text: a kubeconfig is full of secrets.
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise KubeconfigError(str(file), where, f"invalid YAML: {getattr(error, 'problem', 'not text')}") from None
    if len(documents) > 1:
        raise KubeconfigError(str(file), "", f"expected one YAML document, got {len(documents)}")
    document = (documents[0] if documents else None) or {}
    if not isinstance(document, dict):
        raise KubeconfigError(str(file), "", "must be a mapping with clusters, contexts and users")
    return document


def _entries(file: Path, document: Mapping[str, Any], section: str, form: type[_T]) -> dict[str, Entry[_T]]:
    inner = section.removesuffix("s")
    listed = document.get(section) or []
    if not isinstance(listed, list):
        raise KubeconfigError(str(file), section, "must be a list")
    found: dict[str, Entry[_T]] = {}
    for index, item in enumerate(listed):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise KubeconfigError(str(file), f"{section}[{index}]", "must be a mapping with a name")
        place = f"{section}[{index}].{inner} ({item['name']})"
        try:
            values = msgspec.convert(_without_nulls(item.get(inner) or {}), form)
        except msgspec.ValidationError as error:
            problem, _, path = str(error).partition(" - at `$")
            raise KubeconfigError(str(file), place + path.rstrip("`"), problem[0].lower() + problem[1:]) from None
        found.setdefault(item["name"], Entry(file, place, values))
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _referenced(entries: Mapping[str, Entry[_T]], context: Entry[ContextSettings], name: str) -> Entry[_T]:
    wanted = getattr(context.values, name)
    if wanted not in entries:
        existing = ", ".join(sorted(entries)) or "none"
        raise context.error(name, f"unknown {name} {wanted!r}; known: {existing}")
    return entries[wanted]


def _server(cluster: Entry[ClusterSettings]) -> str:
    server = cluster.values.server.rstrip("/")
    if not server:
        raise cluster.error("server", "missing; set the address of the API server")
    if "://" not in server:
        server = f"https://{server}"
    try:
        parts = urlsplit(server)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid:
        raise cluster.error("server", f"invalid address {server!r}; use https://host:6443")
    return server


def _proxy_url(cluster: Entry[ClusterSettings]) -> str:
    proxy = cluster.values.proxy_url
    try:
        valid = not proxy or urlsplit(proxy).scheme in PROXY_SCHEMES
    except ValueError:
        raise cluster.error("proxy-url", f"invalid address {proxy!r}; use http://host:3128") from None
    if not valid:
        raise cluster.error("proxy-url", f"must begin with one of {', '.join(f'{s}://' for s in PROXY_SCHEMES)}")
    return proxy


def _identity(name: str, user: Entry[UserSettings]) -> Identity:
    values = user.values
    certificate, key = user.material("client-certificate"), user.material("client-key")
    if bool(certificate) != bool(key):
        has, lacks = ("client-certificate", "client-key") if certificate else ("client-key", "client-certificate")
        raise user.error(lacks, f"missing; {has} needs it")
    plugin: Plugin | None = values.exec
    if plugin is not None:
        if plugin.api_version not in EXEC_VERSIONS:
            raise user.error("exec.apiVersion", f"invalid {plugin.api_version!r}; use {' or '.join(EXEC_VERSIONS)}")
        plugin = msgspec.structs.replace(plugin, folder=user.file.parent)
    provider, token = values.auth_provider, values.token
    if provider is not None and not token:
        # kubectl dropped `auth-provider`; a token of `oidc` can still be used while it is valid.
        found = provider.config.get("id-token")
        if provider.name != "oidc" or not isinstance(found, str):
            instead = "use its exec plugin (kubelogin, gke-gcloud-auth-plugin)"
            raise user.error("auth-provider", f"{provider.name!r} was removed from Kubernetes; {instead}")
        token = found
    named = [("Impersonate-User", values.as_), ("Impersonate-Uid", values.as_uid)]
    groups = [("Impersonate-Group", group) for group in values.as_groups]
    extra = [(f"Impersonate-Extra-{key}", one) for key, listed in values.as_user_extra.items() for one in listed]
    impersonate = tuple((header, value) for header, value in (*named, *groups, *extra) if value)
    if impersonate and not values.as_:
        raise user.error("as", "missing; as-uid, as-groups and as-user-extra need it")
    return Identity(
        name=name,
        token=token,
        token_file=user.existing_file("tokenFile", values.token_file),
        username=values.username,
        password=values.password,
        certificate=certificate,
        key=key,
        plugin=plugin,
        impersonate=impersonate,
    )
