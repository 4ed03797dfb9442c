"""A thin asyncio client of Kubernetes' API: small structs in, JSON out, nothing lost and nothing doubled.

access = load()                                    # as kubectl: KUBECONFIG, ~/.kube/config, or this pod's own
async with Kubernetes(access) as client:
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
    async for event in client.watch(PODS, labels="app=x"):
        ...
"""

from seatrial.kubernetes.access import Access, Identity, Material, Plugin
from seatrial.kubernetes.client import Kubernetes, Patch
from seatrial.kubernetes.discovery import UnknownKind
from seatrial.kubernetes.errors import (
    AlreadyExists,
    ApiError,
    Closed,
    CommandFailed,
    Conflict,
    CredentialsError,
    Forbidden,
    Gone,
    Incomplete,
    Invalid,
    KubeconfigError,
    KubernetesError,
    NotFound,
    ProtocolError,
    ServerFailed,
    TooManyRequests,
    Unauthorized,
    Uncertain,
    Unreachable,
)
from seatrial.kubernetes.files import Fetched
from seatrial.kubernetes.kubeconfig import load
from seatrial.kubernetes.log_resume import LogLine
from seatrial.kubernetes.logs import Logs
from seatrial.kubernetes.objects import Meta, Object, Owner, Part, Tree
from seatrial.kubernetes.pod import Pod
from seatrial.kubernetes.port_forward import Forward
from seatrial.kubernetes.resources import (
    CONFIG_MAPS,
    EVENTS,
    INGRESSES,
    JOBS,
    LEASES,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VOLUME_CLAIMS,
    Resource,
)
from seatrial.kubernetes.rights import Missing, Right, grant_yaml, grants
from seatrial.kubernetes.streams import STDERR, STDOUT, Command, Completed
from seatrial.kubernetes.watch import ADDED, DELETED, MODIFIED, SYNCED, Event, Watch

__all__ = [
    "ADDED",
    "CONFIG_MAPS",
    "DELETED",
    "EVENTS",
    "INGRESSES",
    "JOBS",
    "LEASES",
    "LIMIT_RANGES",
    "MODIFIED",
    "NAMESPACES",
    "NODES",
    "PODS",
    "PRIORITY_CLASSES",
    "RESOURCE_QUOTAS",
    "ROLES",
    "ROLE_BINDINGS",
    "SECRETS",
    "SERVICES",
    "SERVICE_ACCOUNTS",
    "STDERR",
    "STDOUT",
    "SYNCED",
    "VOLUME_CLAIMS",
    "Access",
    "AlreadyExists",
    "ApiError",
    "Closed",
    "Command",
    "CommandFailed",
    "Completed",
    "Conflict",
    "CredentialsError",
    "Event",
    "Fetched",
    "Forbidden",
    "Forward",
    "Gone",
    "Identity",
    "Incomplete",
    "Invalid",
    "KubeconfigError",
    "Kubernetes",
    "KubernetesError",
    "LogLine",
    "Logs",
    "Material",
    "Meta",
    "Missing",
    "NotFound",
    "Object",
    "Owner",
    "Part",
    "Patch",
    "Plugin",
    "Pod",
    "ProtocolError",
    "Resource",
    "Right",
    "ServerFailed",
    "TooManyRequests",
    "Tree",
    "Unauthorized",
    "Uncertain",
    "UnknownKind",
    "Unreachable",
    "Watch",
    "grant_yaml",
    "grants",
    "load",
]
