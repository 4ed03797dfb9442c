"""The entries of a kubeconfig, read field by field: each error names its file and its field. And its users: tokens,
certificates, passwords, plugins, impersonation."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.kubernetes.access import Identity, Material, Plugin
from seatrial.kubernetes.errors import KubeconfigError

EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
SECRET_FIELDS = ("token", "password", "client-key-data")  # their values are in no message


@dataclass(frozen=True)
class Entry:
    """One cluster, context or user, with the file and the place that it was read from."""

    file: Path
    field: str
    values: Mapping[str, Any]

    def error(self, name: str, problem: str) -> KubeconfigError:
        return KubeconfigError(str(self.file), f"{self.field}.{name}" if name else self.field, problem)

    def text(self, name: str) -> str:
        value = self.values.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(name, f"must be a text, not {value!r}" if name not in SECRET_FIELDS else "must be a text")
        return value

    def flag(self, name: str) -> bool:
        value = self.values.get(name)
        if value not in (None, True, False):
            raise self.error(name, f"must be true or false, not {value!r}")
        return bool(value)

    def path(self, name: str) -> Path | None:
        text = self.text(name)
        return self.file.parent / text if text else None  # an absolute path stays as it is

    def material(self, name: str) -> Material:
        """`NAME-data` (base64 of PEM) before `NAME` (a file), as kubectl has it."""
        inline = self.text(f"{name}-data")
        if inline:
            try:
                return Material(data=base64.b64decode("".join(inline.split()), validate=True))
            except (binascii.Error, ValueError) as error:
                raise self.error(f"{name}-data", f"is not base64: {error}") from None
        return Material(file=self.path(name))

    def readable(self, name: str) -> Material:
        """The same, looked at: a file that is there, a text that is PEM."""
        material = self.material(name)
        if material.file is not None and not material.file.is_file():
            raise self.error(name, f"no such file: {material.file}")
        if not material.file and material and b"-----BEGIN" not in material.data:
            raise self.error(f"{name}-data", "is base64, but not of a PEM text")
        return material


def identity_of(name: str, user: Entry) -> Identity:
    certificate, key = user.readable("client-certificate"), user.readable("client-key")
    if bool(certificate) != bool(key):
        has, lacks = ("client-certificate", "client-key") if certificate else ("client-key", "client-certificate")
        raise user.error(lacks, f"is missing beside {has}")
    token_file = user.path("tokenFile")
    if token_file and not token_file.is_file():
        raise user.error("tokenFile", f"no such file: {token_file}")
    return Identity(
        name=name,
        token=user.text("token") or _provider_token(user),
        token_file=token_file,
        username=user.text("username"),
        password=user.text("password"),
        certificate=certificate,
        key=key,
        plugin=_plugin(user),
        impersonate=_impersonation(user),
    )


def _provider_token(user: Entry) -> str:
    """`auth-provider` is gone from kubectl but for `oidc`, whose token can be used while it is valid."""
    provider = user.values.get("auth-provider")
    if not provider:
        return ""
    settings = provider.get("config") if isinstance(provider, dict) else None
    if isinstance(settings, dict) and provider.get("name") == "oidc" and isinstance(settings.get("id-token"), str):
        return str(settings["id-token"])
    name = provider.get("name") if isinstance(provider, dict) else provider
    problem = f"{name!r} was removed from Kubernetes; use its exec plugin (kubelogin, gke-gcloud-auth-plugin)"
    raise user.error("auth-provider", problem)


def _plugin(user: Entry) -> Plugin | None:
    settings = user.values.get("exec")
    if settings is None:
        return None
    if not isinstance(settings, dict):
        raise user.error("exec", "must be a mapping")
    entry = Entry(user.file, f"{user.field}.exec", settings)
    if not entry.text("command"):
        raise entry.error("command", "is missing")
    if entry.text("apiVersion") not in EXEC_VERSIONS:
        raise entry.error("apiVersion", f"{entry.text('apiVersion')!r} is none of {', '.join(EXEC_VERSIONS)}")
    mode = entry.text("interactiveMode") or "IfAvailable"
    if mode not in ("Never", "IfAvailable", "Always"):
        raise entry.error("interactiveMode", f"{mode!r} is none of Never, IfAvailable, Always")
    args, variables = settings.get("args") or [], settings.get("env") or []
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        raise entry.error("args", "must be a list of texts")
    pairs = [(item.get("name"), item.get("value")) for item in variables if isinstance(item, dict)]
    if not isinstance(variables, list) or len(pairs) != len(variables):
        raise entry.error("env", "must be a list of {name, value}")
    return Plugin(
        command=entry.text("command"),
        args=tuple(args),
        env=tuple((str(key), str(value)) for key, value in pairs),
        api_version=entry.text("apiVersion"),
        install_hint=entry.text("installHint"),
        provide_cluster_info=entry.flag("provideClusterInfo"),
        interactive_mode=mode,
        folder=user.file.parent,
    )


def _impersonation(user: Entry) -> tuple[tuple[str, str], ...]:
    headers = []
    if user.text("as"):
        headers.append(("Impersonate-User", user.text("as")))
    if user.text("as-uid"):
        headers.append(("Impersonate-Uid", user.text("as-uid")))
    groups = user.values.get("as-groups") or []
    if not isinstance(groups, list):
        raise user.error("as-groups", "must be a list")
    headers += [("Impersonate-Group", str(group)) for group in groups]
    extra = user.values.get("as-user-extra") or {}
    if not isinstance(extra, dict):
        raise user.error("as-user-extra", "must be a mapping of lists")
    headers += [(f"Impersonate-Extra-{key}", str(value)) for key, values in extra.items() for value in values]
    if headers and not user.text("as"):
        raise user.error("as", "is missing beside as-uid, as-groups or as-user-extra")
    return tuple(headers)
