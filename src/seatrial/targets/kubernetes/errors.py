"""Turns errors of the Kubernetes client into TargetErrors, and lists the permissions that the target needs."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from seatrial.job import Outcome
from seatrial.kubernetes import (
    JOBS,
    ApiError,
    CredentialsError,
    Forbidden,
    KubeconfigError,
    KubernetesError,
    NotFound,
    Right,
    UnknownKind,
)
from seatrial.targets.kubernetes.manifest import root_resource
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.kubernetes.watch.waiting import NOT_ADMITTED, over_whole_quota
from seatrial.targets.protocol import TargetError, TargetLost

NO_NAMESPACE = re.compile(r'^namespaces "([^"]*)" not found')


def target_error(error: KubernetesError, doing: str = "", lost: bool = False) -> TargetError:
    """The TargetError for `error`. `lost`: the failed request was about a job whose state is now unknown."""
    text = f"{doing}: {error}" if doing else str(error)
    if isinstance(error, NotFound) and (namespace := NO_NAMESPACE.search(error.message)):
        text += f"\nrun `kubectl create namespace {namespace[1]}`, or set another `namespace` in the target"
    if isinstance(error, CredentialsError):
        text += "\nlog in again to renew the credentials; running jobs continue meanwhile"
    if lost or isinstance(error, CredentialsError):
        return TargetLost(text)
    return TargetError(text, Outcome.REFUSED if _refused(error) else Outcome.INFRA)


def _refused(error: KubernetesError) -> bool:
    """Whether the request itself is wrong, so that a retry cannot help: a policy rejects it, or it exceeds a whole
    quota. A full quota and a missing permission are problems of the cluster."""
    if isinstance(error, Forbidden) and error.missing is None:
        return over_whole_quota(error.message) if error.of_quota else NOT_ADMITTED.match(error.message)
    invalid = isinstance(error, ApiError) and error.code in (400, 422)
    return invalid or isinstance(error, UnknownKind | KubeconfigError)


@contextmanager
def target_errors(doing: str = "", lost: bool | type[KubernetesError] = False) -> Iterator[None]:
    """Turns errors of the client in the block into TargetErrors. `lost`: which ones leave the job's state unknown."""
    try:
        yield
    except KubernetesError as error:
        raise target_error(error, doing, lost if isinstance(lost, bool) else isinstance(error, lost)) from error


# Group, resource and verbs that the target uses in its namespace. These permissions are sufficient; none is
# cluster-wide, and none reads secrets.
_Use = tuple[str, str, str]
_ALWAYS: tuple[_Use, ...] = (
    ("", "pods", "get list watch"),  # to see where jobs run, how they end and why they do not start
    ("", "pods/log", "get"),  # to read container output
    # To fetch a job's files and to ask it to stop. A command is a GET that becomes a WebSocket; servers since 1.35
    # require `create`, too.
    ("", "pods/exec", "create get"),
    ("", "events", "list watch"),  # to learn why a pod cannot be created, scheduled or started
    # To pass the agent, the job and its files to pods. Read only if a connection broke during the creation.
    ("", "configmaps", "create get"),
    ("", "services", "create get"),  # to let the hosts of a job find each other
    ("", "secrets", "create"),  # to pass a job its secrets; they are never read back
)
_JOBS = "create delete get list patch"  # to own all objects of a run, and to record which process owns the run
_RUN_JOBS = f"{_JOBS} watch"  # to run, release and stop jobs
_ENDPOINTS: dict[str, tuple[_Use, ...]] = {  # to reach a port of a job
    "port-forward": (("", "pods/portforward", "create get"),),
    "service": (),
    "ingress": (("networking.k8s.io", "ingresses", "create get"),),
    "route": (
        ("route.openshift.io", "routes", "create get"),
        ("route.openshift.io", "routes/custom-host", "create"),  # to give a route the name of `endpoint_host`
    ),
}


def needed(options: KubernetesOptions, namespace: str) -> list[Right]:
    """The permissions that the target needs with these options."""
    root = root_resource(options)
    jobs = [] if root is JOBS else [(JOBS.group, JOBS.plural, _JOBS)]
    uses = [*jobs, (root.group, root.plural, _RUN_JOBS), *_ALWAYS, *_ENDPOINTS[options.endpoint]]
    return [Right(verb, group, resource, namespace) for group, resource, verbs in uses for verb in verbs.split()]
