"""Small structs for the parts of Kubernetes objects that are read.

To read more of an object, subclass `Object` with the fields that you need; the decoder skips all others.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

Manifest = dict[str, Any]  # an object of the API, or a part of one, as plain data

# Errors of decoding: invalid JSON or types, text that is not UTF-8, nesting that is too deep.
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ObjectPart(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A part of an object, with Python names for the JSON fields (`resource_version`).

    Not tracked by the garbage collector: JSON has no cycles, and thousands of these are kept.
    """


class Meta(ObjectPart, frozen=True, gc=False):
    """`metadata` without annotations and managed fields, which are its largest part."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}


class Object(ObjectPart, frozen=True, gc=False):
    """Any object with only its metadata; the server then sends no more than that."""

    metadata: Meta = Meta()


class Tree(Object, frozen=True, gc=False):
    """An object with its content as plain data, for kinds that only the user knows. Not for large numbers."""

    api_version: str = ""
    kind: str = ""
    spec: Any = None
    status: Any = None
    data: Any = None


class StatusCause(ObjectPart, frozen=True, gc=False):
    reason: str = ""
    message: str = ""


class Details(ObjectPart, frozen=True, gc=False):
    causes: tuple[StatusCause, ...] = ()


class Status(ObjectPart, frozen=True, gc=False):
    """The server's Status: an error instead of an object, or the end of an exec."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None


class ListMeta(ObjectPart, frozen=True, gc=False):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


# The requested object in signatures. Only type checkers know its default.
if TYPE_CHECKING:
    import typing_extensions

    O = typing_extensions.TypeVar("O", bound=Object, default=Object)  # noqa: E741
else:
    O = TypeVar("O", bound=Object)  # noqa: E741
OBJECT: Any = Object  # default of parameters of type `type[O]`


class Resource(msgspec.Struct, frozen=True):
    """A kind of object as the API server serves it, with its path. The well-known ones below need no discovery."""

    group: str  # "" is the core group
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def title(self) -> str:
        """Name as in `kubectl` and the server's messages: `pods`, `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Path of all objects, all in a namespace, one object, or a subresource of one."""
        within = f"namespaces/{quote(namespace, safe='')}" if self.namespaced and namespace else ""
        parts = (f"/apis/{self.group}" if self.group else "/api", self.version, within, self.plural)
        return "/".join(filter(None, (*parts, quote(name, safe=""), subresource)))


METHODS = {"create": "POST", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}


class ApiRequest(msgspec.Struct, frozen=True):
    """A request to the server: `verb` as in RBAC, on a resource or on a bare path."""

    verb: str
    resource: Resource | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    bare_path: str = ""

    @property
    def method(self) -> str:
        return METHODS.get(self.verb, "GET")

    @property
    def path(self) -> str:
        if self.resource is None:
            return self.bare_path
        of_all = self.verb == "create" and not self.subresource
        return self.resource.path(self.namespace, "" if of_all else self.name, self.subresource)

    def __str__(self) -> str:
        if self.resource is None:
            return f"{self.verb} {self.bare_path}"
        title = self.resource.title + (f"/{self.subresource}" if self.subresource else "")
        name = f" {self.name}" if self.name else ""
        return f"{self.verb} {title}{name}" + (f" in namespace {self.namespace}" if self.namespace else "")


PODS = Resource("", "v1", "Pod", "pods")
SERVICES = Resource("", "v1", "Service", "services")
SECRETS = Resource("", "v1", "Secret", "secrets")
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
EVENTS = Resource("", "v1", "Event", "events")
NAMESPACES = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
NODES = Resource("", "v1", "Node", "nodes", namespaced=False)
SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts")
RESOURCE_QUOTAS = Resource("", "v1", "ResourceQuota", "resourcequotas")
VOLUME_CLAIMS = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
JOBS = Resource("batch", "v1", "Job", "jobs")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False)
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)

WELL_KNOWN = (
    PODS, SERVICES, SECRETS, CONFIG_MAPS, EVENTS, NAMESPACES, NODES, SERVICE_ACCOUNTS, RESOURCE_QUOTAS, VOLUME_CLAIMS,
    JOBS, PRIORITY_CLASSES, ACCESS_REVIEWS,
)  # fmt: skip
BY_KIND = {(resource.api_version, resource.kind): resource for resource in WELL_KNOWN}


def pod_metadata(spec: Any) -> Iterator[Manifest]:
    """Metadata of each pod template in a spec."""
    return (template.setdefault("metadata", {}) for template in pod_templates(spec))


def pod_templates(spec: Any) -> Iterator[Manifest]:
    """Each pod template in a spec, at any depth: a Job in a JobSet, replicas of a training job."""
    if isinstance(spec, list):
        for one in spec:
            yield from pod_templates(one)
    elif isinstance(spec, dict):
        for key, value in spec.items():
            if key == "template" and isinstance(value, dict) and "containers" in (value.get("spec") or {}):
                yield value
            else:
                yield from pod_templates(value)


_UNITS = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_UNITS |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", start=1)}
_QUANTITY = re.compile(r"^([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([numkMGTPE]?|[KMGTPE]i)$")


def parse_quantity(text: str) -> float | None:
    """Number from a Kubernetes quantity such as `500m`, `8`, `1Gi` or `1e3`; None if it is invalid."""
    found = _QUANTITY.match(text)
    return float(found[1]) * _UNITS[found[2]] if found else None
