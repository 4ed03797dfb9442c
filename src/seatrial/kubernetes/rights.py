"""Permissions, and the YAML that grants exactly those, for error messages and `seatrial doctor`."""

import hashlib
import re
from collections.abc import Iterable

import msgspec

from seatrial.kubernetes.objects import PODS, Manifest, Resource

RBAC = "rbac.authorization.k8s.io"
# "pods is forbidden: User "x" cannot list resource "pods" in API group "" in the namespace "y""
REFUSED = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>[a-z]+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)"| at the cluster scope)?'
)
SERVICE_ACCOUNT = "system:serviceaccount:"


class Right(msgspec.Struct, frozen=True, order=True):
    """One permission. `resource` has its subresource after a slash: `pods/log`."""

    verb: str
    group: str
    resource: str
    namespace: str = ""  # "" is the whole cluster

    def __str__(self) -> str:
        title = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {title} in " + (f"namespace {self.namespace}" if self.namespace else "the whole cluster")


class Missing(msgspec.Struct, frozen=True):
    """A permission that is missing according to the server, and the user that needs it."""

    right: Right
    user: str


def missing_right(message: str) -> Missing | None:
    """The missing permission in an RBAC error. None if something else refused: a quota, an admission check."""
    found = REFUSED.search(message)
    if found is None:
        return None
    return Missing(Right(found["verb"], found["group"], found["resource"], found["namespace"] or ""), found["user"])


def rules(rights: Iterable[Right]) -> list[dict[str, list[str]]]:
    """Few rules that grant exactly these permissions: verbs joined per resource, then resources with the same verbs."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for right in rights:
        verbs.setdefault((right.group, right.resource), set()).add(right.verb)
    joined: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), wanted in sorted(verbs.items()):
        joined.setdefault((group, tuple(sorted(wanted))), []).append(resource)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": list(wanted)}
        for (group, wanted), resources in joined.items()
    ]


def grants(rights: Iterable[Right], user: str) -> list[Manifest]:
    """A Role with a binding for each namespace, and a ClusterRole with a binding for cluster-scoped permissions.

    Their name is unique for these permissions and this user, so that applying them replaces no existing role."""
    subject = {"kind": "User", "name": user, "apiGroup": RBAC}
    if user.startswith(SERVICE_ACCOUNT):
        place, _, account = user.removeprefix(SERVICE_ACCOUNT).partition(":")
        subject = {"kind": "ServiceAccount", "name": account, "namespace": place}
    rights = list(rights)
    text = f"{user} {sorted(map(str, rights))}"
    name = f"seatrial-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    by_place: dict[str, list[Right]] = {}
    for right in rights:
        by_place.setdefault(right.namespace, []).append(right)
    found = []
    for namespace, wanted in sorted(by_place.items()):
        prefix = "" if namespace else "Cluster"
        within = {"namespace": namespace} if namespace else {}
        head = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": name, **within}}
        found.append({**head, "kind": f"{prefix}Role", "rules": rules(wanted)})
        role = {"apiGroup": RBAC, "kind": f"{prefix}Role", "name": name}
        found.append({**head, "kind": f"{prefix}RoleBinding", "roleRef": role, "subjects": [subject]})
    return found


def grant_yaml(rights: Iterable[Right], user: str) -> str:
    """YAML for `kubectl apply -f -` that grants these permissions to `user`."""
    import yaml

    documents = grants(rights, user)
    return str(yaml.safe_dump_all(documents, sort_keys=False, default_flow_style=None, width=110))


def workload_rights(workload: Resource, namespace: str, churn: bool = False) -> list[Right]:
    """Permissions to create many objects of a kind, watch their pods and delete all together, with `churn` also one by
    one, and to change a pod, which measures the lag of a watch."""
    verbs = {workload: ("create", *(("delete",) if churn else ()), "deletecollection", "get", "list", "watch")}
    verbs[PODS] = tuple(sorted({*verbs.get(PODS, ()), "create", "delete", "list", "patch", "watch"}))
    return [Right(verb, one.group, one.plural, namespace) for one, wanted in verbs.items() for verb in wanted]
