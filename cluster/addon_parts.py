"""An addon in a cluster: the process, what of its manifests the API server gets, and when it is in effect."""

import base64
import time
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from cluster import addons
from cluster.addons import Addon
from cluster.api import Api, ApiError
from cluster.control_plane import Part
from cluster.errors import ClusterError
from cluster.folder import Folder, Record

WITHIN_S = 300.0
ANSWERS_WITHIN_S = 30  # the most that the API server waits for one of its webhooks
LOOK_S = 0.05
_RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
_HOOKS = "/apis/admissionregistration.k8s.io/v1"
_DEFINITION = "CustomResourceDefinition"
# What is installed, in this order; not what runs it in pods (deployments, services, secrets).
_BEFORE = {
    "Namespace": "/api/v1/namespaces",
    _DEFINITION: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ClusterRole": f"{_RIGHTS}/clusterroles",
    "ClusterRoleBinding": f"{_RIGHTS}/clusterrolebindings",
    "Role": f"{_RIGHTS}/namespaces/{{namespace}}/roles",
    "RoleBinding": f"{_RIGHTS}/namespaces/{{namespace}}/rolebindings",
}
_AFTER = {
    "MutatingWebhookConfiguration": f"{_HOOKS}/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": f"{_HOOKS}/validatingwebhookconfigurations",
}
Object = dict[str, Any]


def part(folder: Folder, record: Record, addon: Addon) -> Part:
    port = record.ports[addon.name]
    argv = (
        record.programs[addon.name],
        f"--kubeconfig={folder.kubeconfigs / addon.name}",
        f"--port={port}",
        f"--certificates={folder.certificates}",
        *addon.flags,
    )
    return Part(addon.name, argv, port, "/readyz")


def objects(folder: Folder, record: Record, addon: Addon) -> list[Object]:
    """Its manifests, as they are for a controller that is a process of this machine and no service in the cluster."""
    authority = base64.b64encode((folder.certificates / "ca.crt").read_bytes()).decode()
    port = record.ports[addon.name]
    found = []
    for one in addons.manifests(Path(record.programs[addon.name])):
        if one["kind"] == _DEFINITION:
            if not _minds(addon, one["metadata"]["name"]):
                continue
            if hook := one["spec"].get("conversion", {}).get("webhook"):
                hook["clientConfig"] = _leads_here(hook["clientConfig"], port, authority)
        elif one["kind"] in _AFTER:
            one["webhooks"] = [hook for hook in one["webhooks"] if _is_asked(addon, hook)]
            for hook in one["webhooks"]:
                hook["clientConfig"] = _leads_here(hook["clientConfig"], port, authority)
                hook["timeoutSeconds"] = ANSWERS_WITHIN_S
        found.append(one)
    return found


def define(api: Api, made: Iterable[Object]) -> None:
    """What the process needs before it starts."""
    _create(api, made, _BEFORE)


def await_defined(api: Api, made: Iterable[Object]) -> None:
    """Until the API server serves what is defined."""
    for one in made:
        if one["kind"] == _DEFINITION:
            _await_served(api, one["metadata"]["name"])


def ask(api: Api, made: Iterable[Object], addon: Addon) -> None:
    """Lets the API server ask the process, which must be ready; returns when it does."""
    _create(api, made, _AFTER)
    until = time.monotonic() + WITHIN_S
    while not _refused(api, addon):
        if time.monotonic() > until:
            raise ClusterError(f"the API server does not ask {addon.name} about its objects after {WITHIN_S:.0f} s.")
        time.sleep(LOOK_S)


def _minds(addon: Addon, resource: str) -> bool:
    return any(fnmatchcase(resource, pattern) for pattern in addon.minds)


def _is_asked(addon: Addon, hook: Object) -> bool:
    return any(
        _minds(addon, f"{resource.partition('/')[0]}.{group}")
        for rule in hook["rules"]
        for resource in rule["resources"]
        for group in rule["apiGroups"]
    )


def _leads_here(client: Object, port: int, authority: str) -> Object:
    return {"url": f"https://127.0.0.1:{port}{client['service']['path']}", "caBundle": authority}


def _create(api: Api, made: Iterable[Object], paths: dict[str, str]) -> None:
    """One that is there stays as it is: a cluster keeps the programs that it was made with."""
    for kind, path in paths.items():
        for one in made:
            if one["kind"] != kind:
                continue
            try:
                api.request("POST", path.format(namespace=one["metadata"].get("namespace", "")), one)
            except ApiError as error:
                if error.status != 409:
                    raise


def _await_served(api: Api, name: str) -> None:
    until = time.monotonic() + WITHIN_S
    while True:
        status = api.request("GET", f"{_BEFORE[_DEFINITION]}/{name}").get("status", {})
        if any(one["type"] == "Established" and one["status"] == "True" for one in status.get("conditions") or []):
            return
        if time.monotonic() > until:
            raise ClusterError(f"the API server does not serve {name} after {WITHIN_S:.0f} s.")
        time.sleep(LOOK_S)


def _refused(api: Api, addon: Addon) -> bool:
    path, wrong = addon.wrong
    try:
        api.request("POST", f"{path}?dryRun=All", wrong)
    except ApiError as error:
        if "admission webhook" not in str(error):
            raise
        return True
    return False
