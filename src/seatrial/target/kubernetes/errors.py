"""What goes wrong on a cluster, as errors of the target protocol."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from seatrial.job import Outcome
from seatrial.kubernetes import (
    CredentialsError,
    Forbidden,
    Invalid,
    KubeconfigError,
    KubernetesError,
    NotFound,
    Unauthorized,
    Uncertain,
    UnknownKind,
    Unreachable,
)
from seatrial.target.kubernetes.watch.waiting import NOT_ADMITTED, over_whole_quota
from seatrial.target.protocol import TargetError, TargetLost

# What is wrong with what was asked for, not with the place: asking again cannot help.
_REFUSED = (Invalid, UnknownKind, KubeconfigError)
NO_NAMESPACE = re.compile(r'^namespaces "([^"]*)" not found')
UNAUTHENTICATED = (Unauthorized, CredentialsError)  # the server does not accept our credentials
UNANSWERED = (Unreachable, Uncertain)  # what was asked for may have been done


def target_error(error: KubernetesError, doing: str = "", lost: bool = False) -> TargetError:
    """`lost`: what was asked for is about a job that is there, and says nothing of it."""
    text = f"{doing}: {error}" if doing else str(error)
    if isinstance(error, NotFound) and (namespace := NO_NAMESPACE.search(error.message)):
        text += f"\nmake it (`kubectl create namespace {namespace[1]}`), or name another in the target's `namespace`"
    if isinstance(error, UNAUTHENTICATED):
        text += "\nlog in again; jobs that run go on meanwhile"
    if lost or isinstance(error, UNAUTHENTICATED):
        return TargetLost(text)
    refused = isinstance(error, _REFUSED) or _denied(error)
    return TargetError(text, Outcome.REFUSED if refused else Outcome.INFRA)


def _denied(error: KubernetesError) -> bool:
    """By a policy of the cluster, which says the same the next time, or for more than a quota ever gives; not by one
    that is full now, nor for want of a right."""
    if not isinstance(error, Forbidden) or error.missing is not None:
        return False
    return over_whole_quota(error.message) if error.of_quota else NOT_ADMITTED.match(error.message)


@contextmanager
def target_errors(doing: str = "", lost: bool | tuple[type[KubernetesError], ...] = False) -> Iterator[None]:
    """Errors of the client inside become the target's own; `lost`: which of them say nothing of the job."""
    try:
        yield
    except KubernetesError as error:
        raise target_error(error, doing, isinstance(error, lost) if isinstance(lost, tuple) else lost) from error
