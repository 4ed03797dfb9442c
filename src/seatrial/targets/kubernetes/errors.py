"""Errors of the Kubernetes client as errors of the target protocol, and the rights that the target uses."""

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
    """`lost`: what was asked for is about a job that is there, and says nothing of it."""
    text = f"{doing}: {error}" if doing else str(error)
    if isinstance(error, NotFound) and (namespace := NO_NAMESPACE.search(error.message)):
        text += f"\nmake it (`kubectl create namespace {namespace[1]}`), or name another in the target's `namespace`"
    if isinstance(error, CredentialsError):
        text += "\nlog in again; jobs that run go on meanwhile"
    if lost or isinstance(error, CredentialsError):
        return TargetLost(text)
    return TargetError(text, Outcome.REFUSED if _refused(error) else Outcome.INFRA)


def _refused(error: KubernetesError) -> bool:
    """Whether something is wrong with what was asked for, not with the cluster: asking again cannot help. A policy of
    the cluster says the same the next time, a quota never gives more than all; one that is full now, or a right that is
    missing, is the cluster's matter."""
    if isinstance(error, Forbidden) and error.missing is None:
        return over_whole_quota(error.message) if error.of_quota else NOT_ADMITTED.match(error.message)
    invalid = isinstance(error, ApiError) and error.code in (400, 422)
    return invalid or isinstance(error, UnknownKind | KubeconfigError)


@contextmanager
def target_errors(doing: str = "", lost: bool | type[KubernetesError] = False) -> Iterator[None]:
    """Errors of the client inside become the target's own; `lost`: which of them say nothing of the job."""
    try:
        yield
    except KubernetesError as error:
        raise target_error(error, doing, lost if isinstance(lost, bool) else isinstance(error, lost)) from error


# What the target does with each sort of object in its namespace: its group, its name, the verbs. These rights and no
# others are enough; none is of the whole cluster, and none reads secrets.
_Use = tuple[str, str, str]
_ALWAYS: tuple[_Use, ...] = (
    ("", "pods", "get list watch"),  # to see where jobs run, how they end and why they do not start
    ("", "pods/log", "get"),  # to read the output of containers
    # To fetch what a job wrote and to ask it politely to end. A command is asked for by a GET that becomes a WebSocket;
    # servers since 1.35 want the right to create as well.
    ("", "pods/exec", "create get"),
    ("", "events", "list watch"),  # to learn why a pod cannot be made, placed or started
    # To hand the agent, the job and its files to pods. Read again only after a connection broke while one was made:
    # then it may be there already.
    ("", "configmaps", "create get"),
    ("", "services", "create get"),  # to let the hosts of a job find each other
    ("", "secrets", "create"),  # to hand a job its secrets; they are never read back
)
_JOBS = "create delete get list patch"  # to own all that belongs to a run, and to record which process works on it
_RUN_JOBS = f"{_JOBS} watch"  # to run jobs, to release and to end them
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
    """The rights that the target uses with these options."""
    root = root_resource(options)
    jobs = [] if root is JOBS else [(JOBS.group, JOBS.plural, _JOBS)]
    uses = [*jobs, (root.group, root.plural, _RUN_JOBS), *_ALWAYS, *_ENDPOINTS[options.endpoint]]
    return [Right(verb, group, resource, namespace) for group, resource, verbs in uses for verb in verbs.split()]
