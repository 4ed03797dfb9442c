"""Errors of the Kubernetes client as errors of the target protocol, and the rights that the target uses."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from seatrial.job import Outcome
from seatrial.kubernetes import (
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


class Use(msgspec.Struct, frozen=True):
    """What the target does with one sort of object in its namespace, and why. These rights and no others are enough;
    none is of the whole cluster, and none reads secrets."""

    resource: str
    verbs: tuple[str, ...]
    why: str
    group: str = ""


_ALWAYS = (
    Use("pods", ("get", "list", "watch"), "to see where jobs run, how they end and why they do not start"),
    Use("pods/log", ("get",), "to read the output of containers"),
    # A command is asked for by a GET that becomes a WebSocket; servers since 1.35 want the right to create as well.
    Use("pods/exec", ("create", "get"), "to fetch what a job wrote and to ask it politely to end"),
    Use("events", ("list", "watch"), "to learn why a pod cannot be made, placed or started"),
    # Read again only after a connection broke while one was made: then it may be there already.
    Use("configmaps", ("create", "get"), "to hand the agent, the job and its files to pods"),
    Use("services", ("create", "get"), "to let the hosts of a job find each other"),
    Use("secrets", ("create",), "to hand a job its secrets; they are never read back"),
)
_JOBS = ("create", "delete", "get", "list", "patch")
_FORWARD = Use("pods/portforward", ("create", "get"), "to reach a port of a job")
_INGRESS = Use("ingresses", ("create", "get"), "to reach a port of a job from outside", "networking.k8s.io")
_ROUTE = Use("routes", ("create", "get"), "to reach a port of a job from outside", "route.openshift.io")
_ROUTE_HOST = Use(
    "routes/custom-host", ("create",), "to give a route the name of `endpoint_host`", "route.openshift.io"
)
_ENDPOINTS = {"port-forward": (_FORWARD,), "service": (), "ingress": (_INGRESS,), "route": (_ROUTE, _ROUTE_HOST)}


def uses(options: KubernetesOptions) -> list[Use]:
    """What the target does with these options; each sort of object once."""
    root = root_resource(options)
    run = "to own all that belongs to a run, and to record which process works on it"
    if options.workload == "job":
        roots = [Use("jobs", (*_JOBS, "watch"), f"to run jobs, to release and to end them; {run}", "batch")]
    else:
        own = Use(root.plural, (*_JOBS, "watch"), "to run jobs, to release and to end them", root.group)
        roots = [Use("jobs", _JOBS, run, "batch"), own]
    return [*roots, *_ALWAYS, *_ENDPOINTS[options.endpoint]]


def needed(options: KubernetesOptions, namespace: str) -> list[Right]:
    return [Right(verb, use.group, use.resource, namespace) for use in uses(options) for verb in use.verbs]
