"""A thin asyncio client for the Kubernetes API: typed structs in, JSON out, no events lost or repeated.

access = load_access()                                    # as kubectl: KUBECONFIG, ~/.kube/config, or this pod's own
async with Kubernetes(access) as client:
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
    async for event in client.watch(PODS, labels="app=x"):
        ...
"""

from seatrial.http.http1 import RequestAttempt
from seatrial.kubernetes.access import Access, Identity, Material, Plugin
from seatrial.kubernetes.client import Kubernetes
from seatrial.kubernetes.errors import (
    AlreadyExists,
    ApiError,
    Closed,
    CommandFailed,
    CredentialsError,
    Forbidden,
    KubeconfigError,
    KubernetesError,
    NotFound,
    TooLarge,
    UnknownKind,
    Unreachable,
)
from seatrial.kubernetes.kubeconfig import load_access
from seatrial.kubernetes.objects import (
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VOLUME_CLAIMS,
    Manifest,
    Meta,
    Object,
    ObjectPart,
    Resource,
    Tree,
    parse_quantity,
    pod_metadata,
    pod_templates,
)
from seatrial.kubernetes.pod import STDOUT, Pod
from seatrial.kubernetes.rights import Right, grant_yaml, grants, workload_rights
from seatrial.kubernetes.watch import ADDED, DELETED, MODIFIED, SYNCED, Watch, WatchEvent
