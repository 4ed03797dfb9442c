"""Which resources there are, under which path each lives, and what is asked of them. The well-known ones need no
discovery."""

from urllib.parse import quote

import msgspec


class Resource(msgspec.Struct, frozen=True):
    """A kind of object as the API server serves it."""

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
        """As `kubectl` and the server's messages name it: `pods`, `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of all, of all in a namespace, of one, or of a part of one."""
        path = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            path += f"/namespaces/{quote(namespace, safe='')}"
        path += f"/{self.plural}"
        if name:
            path += f"/{quote(name, safe='')}"
        if subresource:
            path += f"/{subresource}"
        return path


METHODS = {"create": "POST", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}


class ApiRequest(msgspec.Struct, frozen=True):
    """What is asked of the server: `verb` as RBAC has it, of a resource or of a path alone."""

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
