"""Reads kubeconfigs: the list in KUBECONFIG merged as kubectl does, one file, or what a pod finds of its own cluster.

1. A file that is named must be there; files of the list in KUBECONFIG may be missing, as with kubectl.
2. The first file that has a cluster, context or user of a name gives it whole; the first `current-context` wins.
3. Paths in a file are relative to that file.
4. Every error names the file and the field in it. Nothing is guessed: an unverified server only when the file says so.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from seatrial.kubernetes.access import Access, Identity, Material
from seatrial.kubernetes.errors import KubeconfigError
from seatrial.kubernetes.kubeconfig_entries import Entry, identity_of

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
SECTIONS = (("clusters", "cluster"), ("contexts", "context"), ("users", "user"))


@dataclass(frozen=True)
class Kubeconfig:
    """What one or more files say together."""

    files: tuple[Path, ...]
    current: str = ""
    clusters: dict[str, Entry] = field(default_factory=dict)
    contexts: dict[str, Entry] = field(default_factory=dict)
    users: dict[str, Entry] = field(default_factory=dict)

    def access(self, context: str | None = None) -> Access:
        """How to reach the cluster of `context`, or of the current one."""
        entry = self._context(context)
        cluster = self._named(self.clusters, entry, "cluster")
        user = self._named(self.users, entry, "user") if entry.text("user") else None
        identity = identity_of(entry.text("user"), user) if user else Identity()
        return Access(
            server=_server(cluster),
            namespace=entry.text("namespace") or "default",
            context=context or self.current,
            source=str(entry.file),
            authority=cluster.readable("certificate-authority"),
            insecure=_insecure(cluster),
            tls_server_name=cluster.text("tls-server-name"),
            proxy_url=_proxy(cluster),
            compression=not cluster.flag("disable-compression"),
            plugin_config=_plugin_config(cluster),
            identity=identity,
        )

    def _context(self, context: str | None) -> Entry:
        names = ", ".join(sorted(self.contexts)) or "none"
        listed = ", ".join(map(str, self.files))
        if not context and not self.current:
            raise KubeconfigError(listed, "current-context", f"is not set; say which context to use: {names}")
        found = self.contexts.get(context or self.current)
        if found is None:
            name = "contexts" if context else "current-context"
            raise KubeconfigError(listed, name, f"there is no context {context or self.current!r}; there are: {names}")
        return found

    def _named(self, entries: Mapping[str, Entry], context: Entry, name: str) -> Entry:
        wanted = context.text(name)
        if wanted not in entries:
            there = ", ".join(sorted(entries)) or "none"
            raise context.error(name, f"there is no {name} {wanted!r}; there are: {there}")
        return entries[wanted]


def load(path: str | Path | None = None, context: str | None = None, env: Mapping[str, str] | None = None) -> Access:
    """The access that kubectl would use: `path`, else KUBECONFIG, else ~/.kube/config, else that of our own pod."""
    env = os.environ if env is None else env
    if path is not None:
        return read([Path(path).expanduser()], must_exist=True).access(context)
    listed = [Path(part).expanduser() for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]
    files = listed or [Path(env.get("HOME") or "~").expanduser() / ".kube" / "config"]
    if any(file.exists() for file in files):
        return read(files, must_exist=False).access(context)
    if env.get("KUBERNETES_SERVICE_HOST") and not context:
        return in_cluster(env)
    where = ", ".join(map(str, files))
    raise KubeconfigError(where, "", "no such file, and this is not a pod; set KUBECONFIG or name a kubeconfig")


def read(files: list[Path], must_exist: bool) -> Kubeconfig:
    merged = Kubeconfig(tuple(file for file in files if must_exist or file.exists()))
    current = ""
    for file in merged.files:
        document = _document(file)
        named = document.get("current-context")
        if named is not None and not isinstance(named, str):
            raise KubeconfigError(str(file), "current-context", f"must be a text, not {named!r}")
        current = current or named or ""
        for section, inner in SECTIONS:
            known: dict[str, Entry] = getattr(merged, section)
            for name, entry in _entries(file, document, section, inner).items():
                known.setdefault(name, entry)
    return Kubeconfig(merged.files, current, merged.clusters, merged.contexts, merged.users)


def in_cluster(env: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Access:
    """From inside a pod: its service account's token, which the kubelet renews, and the cluster's authority."""
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT", "443")
    for name in ("token", "ca.crt"):
        if not (folder / name).exists():
            problem = "is not there: the pod has no service account token (automountServiceAccountToken?)"
            raise KubeconfigError(str(folder / name), "", problem)
    place = folder / "namespace"
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=place.read_text().strip() if place.exists() else "default",
        context="in-cluster",
        source="in-cluster",
        authority=Material(file=folder / "ca.crt"),
        identity=Identity("service account", token_file=folder / "token"),
    )


def _document(file: Path) -> Mapping[str, Any]:
    import yaml

    try:
        with open(file, "rb") as stream:
            document = yaml.load(stream, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except FileNotFoundError:
        raise KubeconfigError(str(file), "", "no such file") from None
    except OSError as error:
        raise KubeconfigError(str(file), "", f"cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # The problem and its place, never the text: a kubeconfig is full of secrets.
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise KubeconfigError(str(file), where, f"is not YAML: {getattr(error, 'problem', 'not text')}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise KubeconfigError(str(file), "", "must hold a mapping with clusters, contexts and users")
    return document


def _entries(file: Path, document: Mapping[str, Any], section: str, inner: str) -> dict[str, Entry]:
    listed = document.get(section) or []
    if not isinstance(listed, list):
        raise KubeconfigError(str(file), section, "must be a list")
    found: dict[str, Entry] = {}
    for index, item in enumerate(listed):
        place = f"{section}[{index}]"
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise KubeconfigError(str(file), place, "must be a mapping with a name")
        values = item.get(inner) or {}
        if not isinstance(values, dict):
            raise KubeconfigError(str(file), f"{place}.{inner}", "must be a mapping")
        found.setdefault(item["name"], Entry(file, f"{place}.{inner} ({item['name']})", values))
    return found


def _server(cluster: Entry) -> str:
    server = cluster.text("server").rstrip("/")
    if not server:
        raise cluster.error("server", "is missing: the address of the API server")
    if "://" not in server:
        server = f"https://{server}"
    try:
        parts = urlsplit(server)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid:
        raise cluster.error("server", f"{server!r} is not an address such as https://host:6443")
    return server


def _insecure(cluster: Entry) -> bool:
    insecure = cluster.flag("insecure-skip-tls-verify")
    if insecure and (cluster.text("certificate-authority") or cluster.text("certificate-authority-data")):
        problem = "contradicts certificate-authority: either the server is verified or it is not"
        raise cluster.error("insecure-skip-tls-verify", problem)
    return insecure


def _proxy(cluster: Entry) -> str:
    proxy = cluster.text("proxy-url")
    if proxy and urlsplit(proxy).scheme not in PROXY_SCHEMES:
        raise cluster.error("proxy-url", f"must begin with one of {', '.join(f'{s}://' for s in PROXY_SCHEMES)}")
    return proxy


def _plugin_config(cluster: Entry) -> Any:
    for item in cluster.values.get("extensions") or []:
        if isinstance(item, dict) and item.get("name") == "client.authentication.k8s.io/exec":
            return item.get("extension")
    return None
