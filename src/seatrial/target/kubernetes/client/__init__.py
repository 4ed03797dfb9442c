"""A thin asyncio client of Kubernetes' API: small structs in, JSON out, nothing lost and nothing doubled.

access = load()                                    # as kubectl: KUBECONFIG, ~/.kube/config, or this pod's own
async with Kubernetes(access) as client:
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
    async for event in client.watch(PODS, labels="app=x"):
        ...
"""

from seatrial.target.kubernetes.client.access import Access, Identity, Material, Plugin
from seatrial.target.kubernetes.client.client import Kubernetes, Patch
from seatrial.target.kubernetes.client.discovery import UnknownKind
from seatrial.target.kubernetes.client.errors import (
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
from seatrial.target.kubernetes.client.files import Fetched
from seatrial.target.kubernetes.client.kubeconfig import load
from seatrial.target.kubernetes.client.log_resume import LogLine
from seatrial.target.kubernetes.client.logs import Logs
from seatrial.target.kubernetes.client.objects import Meta, Object, Owner, Part, Tree
from seatrial.target.kubernetes.client.pod import Pod
from seatrial.target.kubernetes.client.port_forward import Forward
from seatrial.target.kubernetes.client.resources import (
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
from seatrial.target.kubernetes.client.rights import Missing, Right, grant_yaml, grants
from seatrial.target.kubernetes.client.streams import STDERR, STDOUT, Command, Completed
from seatrial.target.kubernetes.client.watch import ADDED, DELETED, MODIFIED, SYNCED, Event, Watch

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
